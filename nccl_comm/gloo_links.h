// The connections of one rank to all others, and what may happen to them: whoever waits is told who is late, gone, or
// why the group has ended. Used by the Gloo communicator alone; the only header that knows Gloo.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nccl_comm/exchange.h"
#include "nccl_comm/gloo_communicator.h"

namespace heddle::comm {

using GlooBuffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// Two connections to each peer: one for headers and tensors, and one on which a rank says why it goes. Gloo closes all
// connections of a context when a wait is too long, so what is to be said then needs the second one.
class GlooLinks {
 public:
  // Finds the others and connects. Throws: CommError.
  GlooLinks(Store& store, const GlooOptions& options);
  ~GlooLinks();
  GlooLinks(const GlooLinks&) = delete;
  GlooLinks& operator=(const GlooLinks&) = delete;

  int rank() const noexcept { return rank_; }
  int world_size() const noexcept { return static_cast<int>(peers_.size()); }

  // A call is start(), any number of receive() into memory that is free, agree(), send() and waits. start() begins its
  // time; the text of `what` must live as long. Throws: CommError once the group has ended.
  void start(const Request& request, std::string_view what);
  // Returns when all ranks have started a call, and the same one. What they say to each other carries up to
  // eager_nbytes() more to every peer, so that a small exchange takes one message: nbytes of `data`, as many as the
  // ranks agree on. Throws: CommError.
  void agree(const void* data = nullptr, std::size_t nbytes = 0);
  // The same on all ranks of a group.
  std::size_t eager_nbytes() const noexcept { return eager_nbytes_; }
  // What the peer gave to agree(), aligned for any dtype; valid until the next agree().
  const std::byte* received(int peer) const noexcept {
    return peers_[static_cast<std::size_t>(peer)].headers[turn_].data() + sizeof(Request);
  }

  // Slot: which of the messages between two ranks in one call, from 0. All may throw CommError. A message has at least
  // a byte, and a buffer is used for one message.
  GlooBuffer receive(int peer, int slot, void* data, std::size_t nbytes);
  GlooBuffer send(int peer, int slot, const void* data, std::size_t nbytes);
  void wait_received(int peer, GlooBuffer& buffer);
  void wait_sent(int peer, GlooBuffer& buffer);

  // Ends the group; the others are told the reason. From any thread.
  void end(const std::string& reason) noexcept;

 private:
  static constexpr std::size_t kGoodbye = 1024;
  struct Peer {
    std::array<std::vector<std::byte>, 2> headers;  // of this call and the next: a Request, and what it carries
    std::array<GlooBuffer, 2> header_buffers;
    std::array<char, kGoodbye> goodbye{};
    GlooBuffer goodbye_buffer;
  };

  void connect(Store& store, const GlooOptions& options, const std::string& group);
  void post_header(int peer, unsigned turn);
  std::chrono::milliseconds time_left() const;
  void say_goodbye(const std::string& text) noexcept;
  void close() noexcept;
  [[noreturn]] void fail(const std::string& reason);
  // After a wait for the peer has failed: finds out why. late: ranks to name if the time is over.
  [[noreturn]] void explain(int peer, const std::string& late, const char* deed);
  // Why the peer has gone, if it has said so. When the time is over nothing more can be said to anybody.
  std::optional<std::string> read_goodbye(int peer, std::chrono::milliseconds time) noexcept;
  // "rank 1", "ranks 1, 2": peers whose header has not come.
  std::string list_late(int first);

  int rank_;
  std::chrono::milliseconds timeout_;  // of a call
  std::size_t eager_nbytes_ = 0;
  std::vector<std::byte> own_header_;  // of the call that runs
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::rendezvous::Context> data_, control_;
  std::vector<Peer> peers_;  // by rank; the own one is empty

  // The call that runs.
  Request request_;
  std::string_view what_;
  std::chrono::steady_clock::time_point deadline_;
  unsigned turn_ = 0;

  std::mutex mutex_;
  bool ended_ = false;  // guarded by mutex_
  std::string reason_;  // guarded by mutex_
  std::array<char, kGoodbye> own_goodbye_{};
  GlooBuffer own_goodbye_buffer_;
};

}  // namespace heddle::comm
