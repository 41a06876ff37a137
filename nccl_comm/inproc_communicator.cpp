#include "nccl_comm/inproc_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "engine/backend/backend.h"
#include "engine/device/device_runtime.h"
#include "nccl_comm/exchange.h"
#include "nccl_comm/meeting.h"
#include "nccl_comm/reduce_ranks.h"

namespace heddle::comm {
namespace {

// What a rank brings to a call. Two of one rank alternate, so that one can be read while the next is written.
struct Offer {
  Request request;
  bool moves = true;  // false: the ranks only compare what they ask for
  Device device;
  const void* input = nullptr;
  void* output = nullptr;
  Event ready;  // on a device: the input is there and the output may be overwritten
  Event done;   // this rank's part of the work
};

struct Group {
  Group(int world_size, std::chrono::milliseconds timeout)
      : meeting(world_size, timeout), offers(static_cast<std::size_t>(world_size > 0 ? world_size : 0)) {}

  Meeting meeting;
  std::vector<std::array<Offer, 2>> offers;  // by rank
};

class InprocCommunicator final : public Communicator, public HostGroup {
 public:
  InprocCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~InprocCommunicator() override { group_->meeting.leave(rank_); }

  const char* name() const noexcept override { return "in-process"; }
  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return static_cast<int>(group_->offers.size()); }
  void abort(const std::string& reason) noexcept override { group_->meeting.end(reason); }
  void agree(const Request& request, std::string_view what) override {
    exchange({.request = request, .moves = false}, what);
  }

 protected:
  void do_all_reduce(Tensor& x, ReduceOp op, std::string_view what) override {
    void* const data = x.mutable_raw_data();
    exchange({.request = {.call = Call::all_reduce,
                          .op = op,
                          .dtype = x.dtype(),
                          .place = place_of(x.device()),
                          .numel = x.numel()},
              .device = x.device(),
              .input = data,
              .output = data},
             what);
  }
  void do_broadcast(Tensor& x, int root, std::string_view what) override {
    void* const data = rank_ == root ? const_cast<void*>(x.raw_data()) : x.mutable_raw_data();
    exchange({.request = {.call = Call::broadcast,
                          .dtype = x.dtype(),
                          .place = place_of(x.device()),
                          .root = root,
                          .numel = x.numel()},
              .device = x.device(),
              .input = data,
              .output = data},
             what);
  }
  void do_all_gather(const Tensor& x, Tensor& y, std::string_view what) override {
    exchange(
        {.request = {.call = Call::all_gather, .dtype = x.dtype(), .place = place_of(x.device()), .numel = x.numel()},
         .device = x.device(),
         .input = x.raw_data(),
         .output = y.mutable_raw_data()},
        what);
  }
  void do_reduce_scatter(const Tensor& x, Tensor& y, ReduceOp op, std::string_view what) override {
    exchange({.request = {.call = Call::reduce_scatter,
                          .op = op,
                          .dtype = x.dtype(),
                          .place = place_of(x.device()),
                          .numel = x.numel()},
              .device = x.device(),
              .input = x.raw_data(),
              .output = y.mutable_raw_data()},
             what);
  }
  void do_barrier(std::string_view what) override { exchange({}, what); }

 private:
  const Offer& offer_of(int rank) const { return group_->offers[static_cast<std::size_t>(rank)][turn_]; }

  void exchange(Offer offer, std::string_view what) {
    turn_ ^= 1U;
    const bool on_device = offer.moves && offer.request.call != Call::barrier && !offer.device.is_cpu();
    const Stream stream = on_device ? current_stream(offer.device) : Stream{};
    if (on_device) offer.ready = runtime_for(offer.device).record(stream);
    Offer& own = group_->offers[static_cast<std::size_t>(rank_)][turn_];
    own = std::move(offer);
    const auto purpose = [&own, &what] { return describe(own.request, what); };
    group_->meeting.come_together(rank_, purpose);
    // From here to part() the others read this rank's memory: it may not be left, whatever happens.
    std::string problem = find_disagreement(requests());
    if (problem.empty() && own.moves) {
      try {
        if (on_device) {
          own.done = move_on_device(own, stream);
        } else {
          move_on_cpu(own);
        }
      } catch (const std::exception& error) {
        problem = join_text(purpose(), ": rank ", rank_, ": ", error.what());
      }
    }
    if (!problem.empty()) group_->meeting.end(problem);
    group_->meeting.part(rank_);
    if (!problem.empty()) throw CommError(problem);
    if (!on_device) return;
    for (int r = 0; r < world_size(); ++r) {
      if (r != rank_ && offer_of(r).done.handle) runtime_for(own.device).wait(stream, offer_of(r).done);
    }
  }

  std::vector<Request> requests() const {
    std::vector<Request> by_rank;
    for (int r = 0; r < world_size(); ++r) by_rank.push_back(offer_of(r).request);
    return by_rank;
  }

  void move_on_cpu(const Offer& own) {
    const int ranks = world_size();
    const std::size_t size = size_of(own.request.dtype);
    switch (own.request.call) {
      case Call::barrier: return;
      case Call::broadcast:
        if (rank_ != own.request.root) {
          std::memcpy(own.output, offer_of(own.request.root).input, static_cast<std::size_t>(own.request.numel) * size);
        }
        return;
      case Call::all_gather:
        for (int r = 0; r < ranks; ++r) {
          const std::size_t nbytes = static_cast<std::size_t>(own.request.numel) * size;
          std::memcpy(static_cast<std::byte*>(own.output) + static_cast<std::size_t>(r) * nbytes, offer_of(r).input,
                      nbytes);
        }
        return;
      case Call::all_reduce:
      case Call::reduce_scatter: break;
    }
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(offer_of(r).input);
    if (own.request.call == Call::all_reduce) {
      for (int r = 0; r < ranks; ++r) outputs.push_back(offer_of(r).output);
      const std::int64_t begin = part_begin(own.request.numel, rank_, ranks);
      reduce_ranks(own.request.dtype, own.request.op, inputs, begin, part_begin(own.request.numel, rank_ + 1, ranks),
                   outputs, begin);
    } else {
      outputs.push_back(own.output);
      const std::int64_t n = own.request.numel / ranks;
      reduce_ranks(own.request.dtype, own.request.op, inputs, n * rank_, n * (rank_ + 1), outputs, 0);
    }
  }

  // Queues this rank's part. Returns an event behind it.
  Event move_on_device(const Offer& own, Stream stream) {
    DeviceRuntime& runtime = runtime_for(own.device);
    const int ranks = world_size();
    const std::size_t size = size_of(own.request.dtype);
    for (int r = 0; r < ranks; ++r) {
      if (r != rank_) runtime.wait(stream, offer_of(r).ready);
    }
    // n elements from element `from` of a rank's input to element `to` of own memory.
    const auto copy_in = [&](void* destination, std::int64_t to, int r, std::int64_t from, std::int64_t n) {
      runtime.copy_async(static_cast<std::byte*>(destination) + static_cast<std::size_t>(to) * size, own.device,
                         static_cast<const std::byte*>(offer_of(r).input) + static_cast<std::size_t>(from) * size,
                         offer_of(r).device, static_cast<std::size_t>(n) * size, stream);
    };
    switch (own.request.call) {
      case Call::barrier: break;
      case Call::broadcast:
        if (rank_ != own.request.root) copy_in(own.output, 0, own.request.root, 0, own.request.numel);
        break;
      case Call::all_gather:
        for (int r = 0; r < ranks; ++r) copy_in(own.output, r * own.request.numel, r, 0, own.request.numel);
        break;
      case Call::all_reduce: {
        const std::int64_t begin = part_begin(own.request.numel, rank_, ranks);
        const std::int64_t n = part_begin(own.request.numel, rank_ + 1, ranks) - begin;
        if (n == 0) break;
        const Tensor total = reduce_on_device(own, begin, n, copy_in);
        for (int r = 0; r < ranks; ++r) {
          runtime.copy_async(static_cast<std::byte*>(offer_of(r).output) + static_cast<std::size_t>(begin) * size,
                             offer_of(r).device, total.raw_data(), own.device, static_cast<std::size_t>(n) * size,
                             stream);
        }
        break;
      }
      case Call::reduce_scatter: {
        const std::int64_t n = own.request.numel / ranks;
        const Tensor total = reduce_on_device(own, n * rank_, n, copy_in);
        runtime.copy_async(own.output, own.device, total.raw_data(), own.device, static_cast<std::size_t>(n) * size,
                           stream);
        break;
      }
    }
    return runtime.record(stream);
  }

  // The reduction of elements [begin, begin + n) of all inputs, in their dtype.
  template <class CopyIn>
  Tensor reduce_on_device(const Offer& own, std::int64_t begin, std::int64_t n, const CopyIn& copy_in) {
    Backend& backend = backend_for(own.device);
    const DType wide = own.request.dtype == DType::bf16 ? DType::f32 : own.request.dtype;
    Tensor total = Tensor::empty({n}, wide, own.device), next = Tensor::empty({n}, wide, own.device);
    Tensor narrow = own.request.dtype == wide ? Tensor() : Tensor::empty({n}, own.request.dtype, own.device);
    for (int r = 0; r < world_size(); ++r) {
      Tensor& target = r == 0 ? total : next;
      copy_in(narrow.defined() ? narrow.mutable_raw_data() : target.mutable_raw_data(), 0, r, begin, n);
      if (narrow.defined()) backend.cast(narrow, target);
      if (r > 0)
        backend.binary(own.request.op == ReduceOp::sum ? BinaryOp::add : BinaryOp::maximum, total, next, total);
    }
    if (!narrow.defined()) return total;
    backend.cast(total, narrow);
    return narrow;
  }

  std::shared_ptr<Group> group_;
  int rank_;
  unsigned turn_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_inproc_group(int world_size, const CommunicatorOptions& options) {
  const auto group = std::make_shared<Group>(world_size, options.timeout);
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int rank = 0; rank < world_size; ++rank) ends.push_back(std::make_unique<InprocCommunicator>(group, rank));
  return ends;
}

}  // namespace heddle::comm
