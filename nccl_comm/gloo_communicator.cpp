#include "nccl_comm/gloo_communicator.h"

#include <cstring>
#include <vector>

#include "engine/core/error.h"
#include "nccl_comm/gloo_links.h"
#include "nccl_comm/reduce_ranks.h"

namespace heddle::comm {
namespace {

// memcpy must not be given a null pointer, which is where a tensor or a part without elements lies.
void copy_bytes(std::byte* to, const void* from, std::size_t nbytes) {
  if (nbytes > 0) std::memcpy(to, from, nbytes);
}

class GlooCommunicator final : public Communicator, public HostGroup {
 public:
  GlooCommunicator(Store& store, const GlooOptions& options) : links_(store, options) {}

  const char* name() const noexcept override { return "gloo"; }
  int rank() const noexcept override { return links_.rank(); }
  int world_size() const noexcept override { return links_.world_size(); }
  void abort(const std::string& reason) noexcept override { links_.end(reason); }
  void agree(const Request& request, std::string_view what) override {
    links_.start(request, what);
    links_.agree();
  }

 protected:
  // Each rank adds up one part and gives it to the others; if it is little, each adds up everything.
  void do_all_reduce(Tensor& x, ReduceOp op, std::string_view what) override {
    start({.call = Call::all_reduce, .op = op, .dtype = x.dtype(), .numel = x.numel()}, x, what);
    if (x.nbytes() <= links_.eager_nbytes()) return add_everything(x, op);
    auto* const data = static_cast<std::byte*>(x.mutable_raw_data());
    const std::size_t size = size_of(x.dtype());
    const auto part = [&](int r) {
      const std::int64_t begin = part_begin(x.numel(), r, world_size());
      return Part{data + static_cast<std::size_t>(begin) * size,
                  static_cast<std::size_t>(part_begin(x.numel(), r + 1, world_size()) - begin) * size};
    };
    const Part own = part(rank());
    std::vector<std::byte> parts(own.nbytes * static_cast<std::size_t>(world_size()));
    Messages given, totals;
    expect(given, 0, parts.data(), own.nbytes);
    // A rank sends its total after it has this rank's part, so nothing is overwritten that is still to go out.
    for (int r = 0; r < world_size(); ++r) {
      if (r != rank() && part(r).nbytes > 0) {
        totals.push_back({r, links_.receive(r, 1, part(r).data, part(r).nbytes)});
      }
    }
    links_.agree();
    Messages sent;
    send_parts(sent, part);
    receive_all(given);
    copy_bytes(parts.data() + own.nbytes * static_cast<std::size_t>(rank()), own.data, own.nbytes);
    add_parts(x.dtype(), op, parts, own);
    if (own.nbytes > 0) {
      for (int r = 0; r < world_size(); ++r) {
        if (r != rank()) sent.push_back({r, links_.send(r, 1, own.data, own.nbytes)});
      }
    }
    receive_all(totals);
    finish(sent);
  }

  void do_broadcast(Tensor& x, int root, std::string_view what) override {
    start({.call = Call::broadcast, .dtype = x.dtype(), .root = root, .numel = x.numel()}, x, what);
    Messages received, sent;
    if (rank() != root) received.push_back({root, links_.receive(root, 0, x.mutable_raw_data(), x.nbytes())});
    links_.agree();
    if (rank() == root) send_to_all(sent, x.raw_data(), x.nbytes());
    receive_all(received);
    finish(sent);
  }

  void do_all_gather(const Tensor& x, Tensor& y, std::string_view what) override {
    start({.call = Call::all_gather, .dtype = x.dtype(), .numel = x.numel()}, x, what);
    auto* const out = static_cast<std::byte*>(y.mutable_raw_data());
    if (x.nbytes() <= links_.eager_nbytes()) {
      links_.agree(x.raw_data(), x.nbytes());
      for (int r = 0; r < world_size(); ++r) {
        copy_bytes(out + x.nbytes() * static_cast<std::size_t>(r), r == rank() ? x.raw_data() : links_.received(r),
                   x.nbytes());
      }
      return;
    }
    Messages received, sent;
    expect(received, 0, out, x.nbytes());
    links_.agree();
    send_to_all(sent, x.raw_data(), x.nbytes());
    copy_bytes(out + x.nbytes() * static_cast<std::size_t>(rank()), x.raw_data(), x.nbytes());
    receive_all(received);
    finish(sent);
  }

  void do_reduce_scatter(const Tensor& x, Tensor& y, ReduceOp op, std::string_view what) override {
    start({.call = Call::reduce_scatter, .op = op, .dtype = x.dtype(), .numel = x.numel()}, x, what);
    const auto part = [&](int r) {
      const auto* const data = static_cast<const std::byte*>(x.raw_data());
      return Part{const_cast<std::byte*>(data) + y.nbytes() * static_cast<std::size_t>(r), y.nbytes()};
    };
    std::vector<std::byte> parts(y.nbytes() * static_cast<std::size_t>(world_size()));
    Messages given, sent;
    expect(given, 0, parts.data(), y.nbytes());
    links_.agree();
    send_parts(sent, part);
    receive_all(given);
    copy_bytes(parts.data() + y.nbytes() * static_cast<std::size_t>(rank()), part(rank()).data, y.nbytes());
    add_parts(x.dtype(), op, parts, {static_cast<std::byte*>(y.mutable_raw_data()), y.nbytes()});
    finish(sent);
  }

  void do_barrier(std::string_view what) override {
    links_.start({}, what);
    links_.agree();
  }

 private:
  struct Part {
    std::byte* data;
    std::size_t nbytes;
  };
  struct Message {
    int peer;
    GlooBuffer buffer;
  };
  using Messages = std::vector<Message>;

  void start(const Request& request, const Tensor& x, std::string_view what) {
    HEDDLE_CHECK(x.device().is_cpu(), describe(request, what), ": Gloo moves tensors of the CPU, this one is on ",
                 x.device());
    links_.start(request, what);
  }

  void add_everything(Tensor& x, ReduceOp op) {
    links_.agree(x.raw_data(), x.nbytes());
    void* const data = x.mutable_raw_data();
    std::vector<const void*> inputs;
    for (int r = 0; r < world_size(); ++r) inputs.push_back(r == rank() ? data : links_.received(r));
    reduce_ranks(x.dtype(), op, inputs, 0, x.numel(), {&data, 1}, 0);
  }

  // A message of nbytes from each peer, into place r of `all`.
  void expect(Messages& messages, int slot, std::byte* all, std::size_t nbytes) {
    if (nbytes == 0) return;
    for (int r = 0; r < world_size(); ++r) {
      if (r != rank()) {
        messages.push_back({r, links_.receive(r, slot, all + nbytes * static_cast<std::size_t>(r), nbytes)});
      }
    }
  }
  template <class PartOf>
  void send_parts(Messages& sent, const PartOf& part) {
    for (int r = 0; r < world_size(); ++r) {
      if (r != rank() && part(r).nbytes > 0) sent.push_back({r, links_.send(r, 0, part(r).data, part(r).nbytes)});
    }
  }
  void send_to_all(Messages& sent, const void* data, std::size_t nbytes) {
    for (int r = 0; r < world_size(); ++r) {
      if (r != rank()) sent.push_back({r, links_.send(r, 0, data, nbytes)});
    }
  }
  void receive_all(Messages& messages) {
    for (Message& message : messages) links_.wait_received(message.peer, message.buffer);
  }
  void finish(Messages& messages) {
    for (Message& message : messages) links_.wait_sent(message.peer, message.buffer);
  }

  // total = the reduction of the parts, which lie one behind the other by rank.
  void add_parts(DType dtype, ReduceOp op, const std::vector<std::byte>& parts, const Part& total) const {
    if (total.nbytes == 0) return;
    std::vector<const void*> inputs;
    for (int r = 0; r < world_size(); ++r) inputs.push_back(parts.data() + total.nbytes * static_cast<std::size_t>(r));
    void* const output = total.data;
    reduce_ranks(dtype, op, inputs, 0, static_cast<std::int64_t>(total.nbytes / size_of(dtype)), {&output, 1}, 0);
  }

  GlooLinks links_;
};

}  // namespace

std::string why_no_gloo() { return {}; }

std::unique_ptr<Communicator> make_gloo_communicator(Store& store, const GlooOptions& options) {
  return std::make_unique<GlooCommunicator>(store, options);
}

}  // namespace heddle::comm
