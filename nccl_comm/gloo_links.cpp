#include "nccl_comm/gloo_links.h"

#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "engine/core/error.h"
#include "nccl_comm/blocked_signals.h"
#include "nccl_comm/machine_identity.h"
#include "nccl_comm/meet.h"

namespace heddle::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kHeaderSlot = 0, kDataSlot = 2;  // two header slots, in turns
constexpr std::uint64_t kGoodbyeSlot = 0;                // of the second context
// A process that has gone has closed both connections; one that has said why has done so before it closed the first.
constexpr std::chrono::milliseconds kGoodbyeTime{1000};
constexpr const char* kLeft = "left";  // a goodbye that is no failure

// Headers are sent as they lie in memory, and a multiple of 16 bytes keeps aligned what follows them.
static_assert(sizeof(Request) == 32);

// Of the memory that a rank keeps for what its peers' headers carry, for one call; and the most that one carries. To
// send everything to everybody takes more bytes than to exchange parts, but one message instead of three, which is
// faster up to a few hundred kilobytes between two ranks.
constexpr std::size_t kEagerTotal = std::size_t{512} << 10, kEagerMost = std::size_t{256} << 10;

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

// What is written there only the ranks of one group read.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(comm::Store& store, std::string prefix, std::chrono::milliseconds timeout, std::function<bool()> cancelled)
      : store_(store),
        prefix_(std::move(prefix)),
        timeout_(timeout),
        cancelled_(std::move(cancelled)),
        deadline_(Clock::now() + timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = wait_for(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) wait_for(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& /*timeout*/) override { wait(keys); }

 private:
  std::string wait_for(const std::string& key) {
    while (true) {
      if (const std::optional<std::string> value = store_.get(prefix_ + key)) return *value;
      if (Clock::now() >= deadline_) {
        // Keys are "place-1", or just the rank.
        throw CommError(join_text("rank ", key.substr(key.rfind('-') + 1), " did not write its address into ",
                                  store_.where(), " within ", seconds(timeout_), " s"));
      }
      throw_if_cancelled(cancelled_);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  comm::Store& store_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
  std::function<bool()> cancelled_;
  Clock::time_point deadline_;
};

// The same text for processes that reach each other by the loopback address: one machine, one network namespace.
std::string network_place() {
  struct stat space {};
  ::stat("/proc/self/ns/net", &space);
  return join_text(machine_identity(), "/", space.st_ino);
}

// The first address of this machine that is none of the loopback; empty if there is none.
std::string first_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> guard(list, ::freeifaddrs);
  for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET) continue;
    char text[NI_MAXHOST] = "";
    if (::getnameinfo(a->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 &&
        !std::string_view(text).starts_with("127.")) {
      return text;
    }
  }
  return {};
}

std::string choose_address(Store& store, GlooStore& notes, const GlooOptions& options) {
  const std::string place = network_place();
  notes.set("place-" + std::to_string(options.rank), {place.begin(), place.end()});
  bool together = true;
  for (int r = 0; r < options.world_size; ++r) {
    const std::vector<char> other = notes.get("place-" + std::to_string(r));
    together = together && std::string(other.begin(), other.end()) == place;
  }
  if (!options.address.empty()) return options.address;
  if (together) return "127.0.0.1";
  std::string address = store.own_address();
  if (address.empty()) address = first_address();
  if (address.empty()) throw CommError("this machine has no network address under which other ranks could reach it");
  return address;
}

// Without the place in Gloo's sources that its messages begin with.
std::string text_of(const std::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  return text.starts_with("[") && end != std::string::npos ? text.substr(end + 2) : text;
}

// Closes the connections, and whoever waits for one of them is told. Gloo does so when a wait is too long, and has no
// other call for it: this is one for a message that nobody sends.
void close_connections(gloo::Context& context) {
  char nothing = 0;
  const GlooBuffer buffer = context.createUnboundBuffer(&nothing, 1);
  try {
    buffer->waitRecv(std::chrono::milliseconds(1));
  } catch (const std::exception&) {
    // As wanted.
  }
}

// Writing to a connection that the other side has closed is an error to report, in this thread alone.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &previous_);
  }
  ~NoSigpipe() {
    if (!::sigismember(&previous_, SIGPIPE)) {
      const timespec now{};
      while (::sigtimedwait(&pipe_, nullptr, &now) > 0) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, previous_;
};

}  // namespace

GlooLinks::GlooLinks(Store& store, const GlooOptions& options)
    : rank_(options.rank), timeout_(options.connect_timeout) {
  HEDDLE_CHECK(options.communicator.timeout.count() > 0, "the time to wait for other ranks is ",
               options.communicator.timeout.count(), " ms, expected above 0");
  const std::string group = meet(
      store,
      {.rank = options.rank, .world_size = options.world_size, .timeout = timeout_, .cancelled = options.cancelled});
  peers_.resize(static_cast<std::size_t>(options.world_size));
  if (options.world_size == 1) return;
  const NoSigpipe no_sigpipe;
  try {
    connect(store, options, group);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(join_text("rank ", rank_, " of ", world_size(), " cannot connect to the others: ", text_of(error)));
  }
  timeout_ = options.communicator.timeout;
}

void GlooLinks::connect(Store& store, const GlooOptions& options, const std::string& group) {
  GlooStore notes(store, group + "-", timeout_, options.cancelled);
  gloo::transport::tcp::attr where(choose_address(store, notes, options).c_str());
  {
    const BlockedSignals blocked;
    device_ = gloo::transport::tcp::CreateDevice(where);
  }
  for (auto* const context : {&data_, &control_}) {
    *context = std::make_shared<gloo::rendezvous::Context>(rank_, world_size());
    // Gloo waits five times as long for a connection.
    (*context)->setTimeout(std::max(timeout_ / 5, std::chrono::milliseconds(1)));
    GlooStore addresses(store, join_text(group, context == &data_ ? "-data-" : "-control-"), timeout_,
                        options.cancelled);
    (*context)->connectFullMesh(addresses, device_);
  }
  eager_nbytes_ = std::min(kEagerTotal / static_cast<std::size_t>(world_size() - 1), kEagerMost);
  own_header_.resize(sizeof(Request) + eager_nbytes_);
  own_goodbye_buffer_ = control_->createUnboundBuffer(own_goodbye_.data(), own_goodbye_.size());
  for (int r = 0; r < world_size(); ++r) {
    if (r == rank_) continue;
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    peer.goodbye_buffer = control_->createUnboundBuffer(peer.goodbye.data(), peer.goodbye.size());
    peer.goodbye_buffer->recv(r, kGoodbyeSlot);
    for (unsigned turn = 0; turn < 2; ++turn) {
      std::vector<std::byte>& header = peer.headers[turn];
      header.resize(sizeof(Request) + eager_nbytes_);
      peer.header_buffers[turn] = data_->createUnboundBuffer(header.data(), header.size());
    }
    post_header(r, 1);  // the first call's
  }
  // Nobody needs the store when all have come here.
  start({}, "connecting");
  agree();
}

GlooLinks::~GlooLinks() {
  if (!data_) return;
  const NoSigpipe no_sigpipe;
  bool ended = false;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(ended_, true);
  }
  if (!ended) {
    say_goodbye(kLeft);
    close();
  }
}

void GlooLinks::post_header(int peer, unsigned turn) {
  peers_[static_cast<std::size_t>(peer)].header_buffers[turn]->recv(peer, kHeaderSlot + turn);
}

std::chrono::milliseconds GlooLinks::time_left() const {
  // Rounded up: a wait that ended before the deadline would be taken for a lost connection. Never the -1 that stands
  // for Gloo's own timeout.
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()), std::chrono::milliseconds(1));
}

void GlooLinks::start(const Request& request, std::string_view what) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) throw CommError(reason_);
  }
  request_ = request;
  what_ = what;
  deadline_ = Clock::now() + timeout_;
  turn_ ^= 1U;
}

void GlooLinks::agree(const void* data, std::size_t nbytes) {
  const NoSigpipe no_sigpipe;
  // A message with less than was expected is no error.
  std::memcpy(own_header_.data(), &request_, sizeof request_);
  if (nbytes > 0) std::memcpy(own_header_.data() + sizeof request_, data, nbytes);
  std::vector<GlooBuffer> sent(peers_.size());
  for (int r = 0; r < world_size(); ++r) {
    if (r == rank_) continue;
    // The next call's header is expected from here on, not from the end of this call: a rank that leaves after this
    // call has nothing of ours unread then, which would make the system drop what it has sent last.
    try {
      post_header(r, turn_ ^ 1U);
      GlooBuffer& buffer = sent[static_cast<std::size_t>(r)];
      buffer = data_->createUnboundBuffer(own_header_.data(), sizeof request_ + nbytes);
      buffer->send(r, kHeaderSlot + turn_);
    } catch (const std::exception&) {
      explain(r, join_text("rank ", r), "come");
    }
  }
  std::vector<Request> requests(peers_.size());
  for (int r = 0; r < world_size(); ++r) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (r != rank_) {
      try {
        peer.header_buffers[turn_]->waitRecv(time_left());
      } catch (const std::exception&) {
        explain(r, Clock::now() < deadline_ ? std::string() : list_late(r), "come");
      }
    }
    const std::byte* const header = r == rank_ ? own_header_.data() : peer.headers[turn_].data();
    std::memcpy(&requests[static_cast<std::size_t>(r)], header, sizeof(Request));
  }
  const std::string problem = find_disagreement(requests);
  if (!problem.empty()) fail(problem);
  for (int r = 0; r < world_size(); ++r) {
    if (r != rank_) wait_sent(r, sent[static_cast<std::size_t>(r)]);
  }
}

std::string GlooLinks::list_late(int first) {
  std::string list = std::to_string(first);
  int count = 1;
  for (int r = first + 1; r < world_size(); ++r) {
    if (r == rank_) continue;
    try {
      // What has come can be read although the connections are closed by now.
      peers_[static_cast<std::size_t>(r)].header_buffers[turn_]->waitRecv(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
      list += join_text(", ", r);
      ++count;
    }
  }
  return (count == 1 ? "rank " : "ranks ") + list;
}

GlooBuffer GlooLinks::receive(int peer, int slot, void* data, std::size_t nbytes) {
  const NoSigpipe no_sigpipe;
  try {
    GlooBuffer buffer = data_->createUnboundBuffer(data, nbytes);
    buffer->recv(peer, kDataSlot + static_cast<std::uint64_t>(slot));
    return buffer;
  } catch (const std::exception&) {
    explain(peer, join_text("rank ", peer), "come");
  }
}

GlooBuffer GlooLinks::send(int peer, int slot, const void* data, std::size_t nbytes) {
  const NoSigpipe no_sigpipe;
  try {
    GlooBuffer buffer = data_->createUnboundBuffer(const_cast<void*>(data), nbytes);
    buffer->send(peer, kDataSlot + static_cast<std::uint64_t>(slot));
    return buffer;
  } catch (const std::exception&) {
    explain(peer, join_text("rank ", peer), "take its part");
  }
}

void GlooLinks::wait_received(int peer, GlooBuffer& buffer) {
  try {
    buffer->waitRecv(time_left());
  } catch (const std::exception&) {
    explain(peer, join_text("rank ", peer), "send its part");
  }
}

void GlooLinks::wait_sent(int peer, GlooBuffer& buffer) {
  try {
    buffer->waitSend(time_left());
  } catch (const std::exception&) {
    explain(peer, join_text("rank ", peer), "take its part");
  }
}

void GlooLinks::explain(int peer, const std::string& late, const char* deed) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) throw CommError(reason_);
  }
  const std::string purpose = describe(request_, what_);
  if (Clock::now() >= deadline_) {
    end(join_text(purpose, ": ", late, " of ", world_size(), " did not ", deed, " within ", seconds(timeout_), " s"));
    // The peer may have given up long ago, if this process was stopped for a while.
    const std::optional<std::string> goodbye = read_goodbye(peer, std::chrono::milliseconds(1));
    const std::lock_guard lock(mutex_);
    throw CommError(goodbye && *goodbye != kLeft ? *goodbye : reason_);
  }
  const std::optional<std::string> goodbye = read_goodbye(peer, kGoodbyeTime);
  if (!goodbye) {
    fail(join_text(purpose, ": rank ", peer, " of ", world_size(),
                   " is gone: its process has ended, or the connection is lost"));
  }
  fail(*goodbye == kLeft ? join_text(purpose, ": rank ", peer, " of ", world_size(), " has left") : *goodbye);
}

std::optional<std::string> GlooLinks::read_goodbye(int peer, std::chrono::milliseconds time) noexcept {
  try {
    Peer& gone = peers_[static_cast<std::size_t>(peer)];
    gone.goodbye_buffer->waitRecv(time);
    return std::string(gone.goodbye.data(), ::strnlen(gone.goodbye.data(), gone.goodbye.size()));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void GlooLinks::fail(const std::string& reason) {
  end(reason);
  const std::lock_guard lock(mutex_);
  throw CommError(reason_);
}

void GlooLinks::end(const std::string& reason) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(ended_, true)) return;
      reason_ = reason.empty() ? "the group of ranks has ended" : reason;
    }
    if (!data_) return;
    const NoSigpipe no_sigpipe;
    say_goodbye(reason_);
    close();
  } catch (const std::exception&) {
  }
}

void GlooLinks::say_goodbye(const std::string& text) noexcept {
  const std::size_t n = std::min(text.size(), own_goodbye_.size() - 1);
  std::copy_n(text.begin(), n, own_goodbye_.begin());
  for (int r = 0; r < world_size(); ++r) {
    if (r == rank_) continue;
    try {
      own_goodbye_buffer_->send(r, kGoodbyeSlot);
    } catch (const std::exception&) {
      // Gone itself.
    }
  }
}

void GlooLinks::close() noexcept {
  try {
    close_connections(*data_);
  } catch (const std::exception&) {
    // Nothing more can be closed.
  }
}

}  // namespace heddle::comm
