// The store that rank 0 serves over TCP. A request is an operation ('s' set, 'g' get), the lengths of key and value as
// 32-bit numbers in network order, and their bytes; the answer is a length (or kNothing) and the value's bytes.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "nccl_comm/blocked_signals.h"
#include "nccl_comm/store.h"

namespace heddle::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kNothing = 0xffffffffu;
constexpr std::uint32_t kLongest = 1u << 20;  // of key and value; more is nobody of ours
constexpr std::size_t kHead = 1 + 2 * sizeof(std::uint32_t);

void append_number(std::string& text, std::uint32_t number) {
  const std::uint32_t bytes = htonl(number);
  text.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
}

std::uint32_t number_at(const std::string& text, std::size_t at) {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, text.data() + at, sizeof bytes);
  return ntohl(bytes);
}

std::string request(char operation, const std::string& key, const std::string& value) {
  std::string text(1, operation);
  append_number(text, static_cast<std::uint32_t>(key.size()));
  append_number(text, static_cast<std::uint32_t>(value.size()));
  return text + key + value;
}

void send_small_packets_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// The numeric address of this end of a connection; empty if it is a loopback one, which other machines cannot reach.
std::string own_end(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char text[NI_MAXHOST] = "";
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
          0) {
    return {};
  }
  std::string name = text;
  if (name.starts_with("::ffff:")) name = name.substr(7);
  return name == "::1" || name.starts_with("127.") ? std::string() : name;
}

// Answers until it is destroyed.
class Server {
 public:
  explicit Server(const TcpStoreOptions& options) : wake_(::eventfd(0, EFD_CLOEXEC)) {
    listen(options);
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  }
  ~Server() {
    const std::uint64_t one = 1;
    while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  std::optional<std::string> get(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string address() {
    const std::lock_guard lock(mutex_);
    return address_;
  }

 private:
  struct Client {
    FileHandle fd;
    std::string in, out;
  };

  void listen(const TcpStoreOptions& options) {
    const auto fail = [&](const char* call) {
      throw CommError(join_text("port ", options.port, ", on which rank 0 is to answer the others: ", call, ": ",
                                std::strerror(errno)));
    };
    const int on = 1, off = 0;
    int family = AF_INET6;
    listener_ = FileHandle(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (listener_.get() < 0) {
      family = AF_INET;
      listener_ = FileHandle(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    }
    if (listener_.get() < 0) fail("socket");
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) {
      ::setsockopt(listener_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(options.port);
      if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("bind");
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(options.port);
      if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("bind");
    }
    if (::listen(listener_.get(), SOMAXCONN) != 0) fail("listen");
  }

  void run() {
    std::list<Client> clients;
    while (true) {
      std::vector<pollfd> waits{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Client& client : clients) {
        waits.push_back({client.fd.get(), static_cast<short>(client.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      }
      if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
      if (waits[0].revents != 0) return;
      std::size_t i = 2;
      for (auto client = clients.begin(); client != clients.end(); ++i) {
        client = waits[i].revents != 0 && !serve(*client) ? clients.erase(client) : std::next(client);
      }
      if (waits[1].revents != 0) accept_one(clients);
    }
  }

  void accept_one(std::list<Client>& clients) {
    FileHandle fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) return;
    send_small_packets_at_once(fd.get());
    {
      const std::lock_guard lock(mutex_);
      if (address_.empty()) address_ = own_end(fd.get());
    }
    clients.push_back({std::move(fd), {}, {}});
  }

  // False if the client is gone or speaks something else.
  bool serve(Client& client) {
    char block[4096];
    while (true) {
      const ssize_t n = ::recv(client.fd.get(), block, sizeof block, 0);
      if (n > 0) {
        client.in.append(block, static_cast<std::size_t>(n));
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      return false;
    }
    while (client.in.size() >= kHead) {
      const char operation = client.in[0];
      const std::uint32_t key_size = number_at(client.in, 1), value_size = number_at(client.in, 5);
      if ((operation != 's' && operation != 'g') || key_size > kLongest || value_size > kLongest) return false;
      if (client.in.size() < kHead + key_size + value_size) break;
      const std::string key = client.in.substr(kHead, key_size);
      if (operation == 's') {
        set(key, client.in.substr(kHead + key_size, value_size));
        append_number(client.out, 0);
      } else {
        const std::optional<std::string> value = get(key);
        append_number(client.out, value ? static_cast<std::uint32_t>(value->size()) : kNothing);
        client.out += value.value_or("");
      }
      client.in.erase(0, kHead + key_size + value_size);
    }
    while (!client.out.empty()) {
      const ssize_t n = ::send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (n > 0) {
        client.out.erase(0, static_cast<std::size_t>(n));
      } else if (errno != EINTR) {
        return errno == EAGAIN || errno == EWOULDBLOCK;
      }
    }
    return true;
  }

  FileHandle wake_, listener_;
  std::mutex mutex_;
  std::map<std::string, std::string> values_;  // guarded by mutex_
  std::string address_;                        // guarded by mutex_
  std::thread thread_;
};

class ServedStore final : public Store {
 public:
  explicit ServedStore(const TcpStoreOptions& options) : port_(options.port), server_(options) {}
  void set(const std::string& key, const std::string& value) override { server_.set(key, value); }
  std::optional<std::string> get(const std::string& key) override { return server_.get(key); }
  std::string where() const override { return join_text("port ", port_, " of rank 0"); }
  std::string own_address() const override { return server_.address(); }

 private:
  std::uint16_t port_;
  mutable Server server_;
};

class ClientStore final : public Store {
 public:
  explicit ClientStore(const TcpStoreOptions& options) : options_(options) {
    const Clock::time_point deadline = Clock::now() + options.timeout;
    std::string reason;
    while (!connect(reason)) {
      if (Clock::now() >= deadline) {
        throw CommError(join_text("rank 0 does not answer at ", where(), " within ",
                                  std::chrono::duration<double>(options.timeout).count(), " s: ", reason));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  void set(const std::string& key, const std::string& value) override { ask(request('s', key, value)); }
  std::optional<std::string> get(const std::string& key) override { return ask(request('g', key, {})); }
  std::string where() const override { return join_text(options_.host, " port ", options_.port); }
  std::string own_address() const override { return own_end(fd_.get()); }

 private:
  bool connect(std::string& reason) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int code = ::getaddrinfo(options_.host.c_str(), std::to_string(options_.port).c_str(), &wanted, &list);
    if (code != 0) {
      reason = ::gai_strerror(code);
      return false;
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> guard(list, ::freeaddrinfo);
    for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
      FileHandle fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (fd.get() < 0) continue;
      int error = ::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS) {
        // A machine that is not there does not answer at all; the next try may find it.
        pollfd wait{fd.get(), POLLOUT, 0};
        socklen_t length = sizeof error;
        if (::poll(&wait, 1, 1000) <= 0) {
          error = ETIMEDOUT;
        } else {
          ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        }
      }
      if (error == 0) {
        send_small_packets_at_once(fd.get());
        fd_ = std::move(fd);
        return true;
      }
      reason = std::strerror(error);
    }
    return false;
  }

  [[noreturn]] void lost(const std::string& reason) const {
    throw CommError(join_text("the connection to rank 0 at ", where(), " is lost: ", reason));
  }

  void wait(short events, Clock::time_point deadline) const {
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd wait{fd_.get(), events, 0};
      const int ready = left > 0 ? ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000))) : 0;
      if (ready > 0) return;
      if (ready < 0 && errno != EINTR) lost(std::strerror(errno));
      if (left <= 0) {
        lost(join_text("no answer within ", std::chrono::duration<double>(options_.timeout).count(), " s"));
      }
    }
  }

  std::string receive(std::size_t nbytes, Clock::time_point deadline) const {
    std::string text(nbytes, '\0');
    for (std::size_t done = 0; done < nbytes;) {
      wait(POLLIN, deadline);
      const ssize_t n = ::recv(fd_.get(), text.data() + done, nbytes - done, 0);
      if (n > 0) {
        done += static_cast<std::size_t>(n);
      } else if (n == 0) {
        lost("it was closed");
      } else if (errno != EINTR && errno != EAGAIN) {
        lost(std::strerror(errno));
      }
    }
    return text;
  }

  std::optional<std::string> ask(const std::string& text) const {
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    for (std::size_t done = 0; done < text.size();) {
      wait(POLLOUT, deadline);
      const ssize_t n = ::send(fd_.get(), text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n > 0) {
        done += static_cast<std::size_t>(n);
      } else if (errno != EINTR && errno != EAGAIN) {
        lost(std::strerror(errno));
      }
    }
    const std::uint32_t size = number_at(receive(sizeof(std::uint32_t), deadline), 0);
    if (size == kNothing) return std::nullopt;
    if (size > kLongest) lost("something else than a training of Heddle answers there");
    return receive(size, deadline);
  }

  TcpStoreOptions options_;
  FileHandle fd_;
};

}  // namespace

std::unique_ptr<Store> make_tcp_store(const TcpStoreOptions& options) {
  HEDDLE_CHECK(options.timeout.count() > 0, "the time to wait for other ranks is ", options.timeout.count(),
               " ms, expected above 0");
  if (options.serve) return std::make_unique<ServedStore>(options);
  return std::make_unique<ClientStore>(options);
}

}  // namespace heddle::comm
