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
// Whoever can reach the port can send something, which must not take the memory or the time of rank 0.
constexpr std::size_t kMostClients = 4096;
constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // stored; and as many in the buffers of all clients
constexpr int kReadsATurn = 64;                             // of a client, before the others are looked at
constexpr int kPauseMs = 100;                               // after an accept for which this process has no resources

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

// Whether the host stands for this machine alone. A name that resolves to a loopback address does not: many machines
// give their own name one in /etc/hosts, while others reach them by it.
bool names_loopback(const std::string& host) {
  in_addr v4{};
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && ::inet_pton(AF_INET, host.c_str(), &v4) == 1);
}

// Answers until it is destroyed.
class Server {
 public:
  explicit Server(const TcpStoreOptions& options) : wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (wake_.get() < 0) fail(options, "eventfd");
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

  // False, with nothing stored, if there is too much already.
  bool set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    const std::size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
    if (stored_ - before + key.size() + value.size() > kMostBytes) return false;
    stored_ += key.size() + value.size() - before;
    values_[key] = value;
    return true;
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

  enum class Answer { given, wanting, refused };

  [[noreturn]] static void fail(const TcpStoreOptions& options, const char* call) {
    throw CommError(join_text("port ", options.port, ", on which rank 0 is to answer the others: ", call, ": ",
                              std::strerror(errno)));
  }

  void open_listener(int family) {
    listener_ = FileHandle(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (listener_.get() >= 0) ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }

  void listen(const TcpStoreOptions& options) {
    if (names_loopback(options.host)) {
      bind_loopback(options);
    } else {
      bind_all(options);
    }
    if (::listen(listener_.get(), SOMAXCONN) != 0) fail(options, "listen");
  }

  // The first address of the name that this machine has; the others try them in the same order.
  void bind_loopback(const TcpStoreOptions& options) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int code = ::getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &wanted, &list);
    if (code != 0) throw CommError(join_text(options.host, ": ", ::gai_strerror(code)));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> guard(list, ::freeaddrinfo);
    for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
      open_listener(a->ai_family);
      if (listener_.get() >= 0 && ::bind(listener_.get(), a->ai_addr, a->ai_addrlen) == 0) return;
      if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) break;
    }
    fail(options, "bind");
  }

  void bind_all(const TcpStoreOptions& options) {
    open_listener(AF_INET6);
    if (listener_.get() >= 0) {
      const int off = 0;
      ::setsockopt(listener_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(options.port);
      if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail(options, "bind");
      return;
    }
    open_listener(AF_INET);
    if (listener_.get() < 0) fail(options, "socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(options.port);
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail(options, "bind");
  }

  void run() {
    std::list<Client> clients;
    bool pausing = false;
    while (true) {
      std::vector<pollfd> waits{{wake_.get(), POLLIN, 0}, {pausing ? -1 : listener_.get(), POLLIN, 0}};
      buffered_ = 0;
      for (const Client& client : clients) {
        // Who does not take its answers is not read.
        waits.push_back({client.fd.get(), static_cast<short>(client.out.empty() ? POLLIN : POLLOUT), 0});
        buffered_ += client.in.size() + client.out.size();
      }
      if (::poll(waits.data(), waits.size(), pausing ? kPauseMs : -1) < 0 && errno != EINTR) return;
      if (waits[0].revents != 0) return;
      std::size_t i = 2;
      for (auto client = clients.begin(); client != clients.end(); ++i) {
        client = waits[i].revents != 0 && !serve(*client) ? clients.erase(client) : std::next(client);
      }
      pausing = waits[1].revents != 0 && !accept_one(clients);
    }
  }

  // False if there is nothing left to accept it with.
  bool accept_one(std::list<Client>& clients) {
    FileHandle fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    if (clients.size() >= kMostClients) return true;
    send_small_packets_at_once(fd.get());
    {
      const std::lock_guard lock(mutex_);
      if (address_.empty()) address_ = own_end(fd.get());
    }
    clients.push_back({std::move(fd), {}, {}});
    return true;
  }

  // False if the client is gone, speaks something else or wants too much.
  bool serve(Client& client) {
    for (int reads = 0;;) {
      if (!send_answers(client)) return false;
      if (!client.out.empty()) return true;
      const Answer answer = answer_one(client);
      if (answer == Answer::refused) return false;
      if (answer == Answer::given) continue;
      if (++reads > kReadsATurn) return true;
      char block[4096];
      const ssize_t n = ::recv(client.fd.get(), block, sizeof block, 0);
      if (n > 0) {
        client.in.append(block, static_cast<std::size_t>(n));
        buffered_ += static_cast<std::size_t>(n);
        if (buffered_ > kMostBytes) return false;
      } else if (n == 0 || errno != EINTR) {
        return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      }
    }
  }

  // Answers the first request that has come, if it is whole. One that is not is never longer than the longest.
  Answer answer_one(Client& client) {
    if (client.in.size() < kHead) return Answer::wanting;
    const char operation = client.in[0];
    const std::uint32_t key_size = number_at(client.in, 1), value_size = number_at(client.in, 5);
    if ((operation != 's' && operation != 'g') || key_size > kLongest || value_size > kLongest) return Answer::refused;
    const std::size_t size = kHead + key_size + value_size;
    if (client.in.size() < size) return Answer::wanting;
    const std::string key = client.in.substr(kHead, key_size);
    if (operation == 's') {
      if (!set(key, client.in.substr(kHead + key_size, value_size))) return Answer::refused;
      append_number(client.out, 0);
    } else {
      const std::optional<std::string> value = get(key);
      append_number(client.out, value ? static_cast<std::uint32_t>(value->size()) : kNothing);
      client.out += value.value_or("");
    }
    client.in.erase(0, size);
    return Answer::given;
  }

  // As much as the client takes; false if it is gone.
  static bool send_answers(Client& client) {
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
  std::size_t stored_ = 0;                     // bytes in values_; guarded by mutex_
  std::string address_;                        // guarded by mutex_
  std::size_t buffered_ = 0;                   // of the clients, in the server's thread
  std::thread thread_;
};

class ServedStore final : public Store {
 public:
  explicit ServedStore(const TcpStoreOptions& options) : port_(options.port), server_(options) {}
  void set(const std::string& key, const std::string& value) override {
    if (!server_.set(key, value)) {
      throw CommError(join_text(where(), " holds more than ", kMostBytes, " bytes, most of them from somebody else"));
    }
  }
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
      throw_if_cancelled(options.cancelled);
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
