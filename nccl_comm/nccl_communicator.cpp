#include "nccl_comm/nccl_communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/device/device_runtime.h"
#include "nccl_comm/exchange.h"
#include "nccl_comm/nccl_link.h"
#include "nccl_comm/nccl_plugin.h"

namespace heddle::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Longest time for leaving in order, which others may be too late for.
constexpr milliseconds kLeave{5000};
// At the end of what goes wrong while memory is registered.
constexpr const char* kWayOut = "; HEDDLE_NCCL_MEMORY=ordinary in the environment does without NCCL's memory";
// Short waits look often; a long one leaves the core.
constexpr int kBusyLooks = 200;
constexpr std::chrono::microseconds kPause{50};

void pause(int looks) {
  if (looks < kBusyLooks) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kPause);
  }
}

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Why a group has ended, for all its ranks in this process. The first reason stays.
class GroupEnd {
 public:
  void set(const std::string& reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    try {
      reason_ = reason;
    } catch (const std::bad_alloc&) {
      reason_.clear();
    }
    ended_ = true;
  }
  bool is_set() const noexcept { return ended_; }
  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_.empty() ? "the group of ranks has ended" : reason_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> ended_{false};
  std::string reason_;
};

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::i64: return ncclInt64;
    default: throw InvalidArgument(join_text("NCCL is not asked to reduce ", dtype));
  }
}

// NCCL's maximum takes the number where the other side is NaN.
bool loses_nan(DType dtype, ReduceOp op) { return op == ReduceOp::max && dtype != DType::i64; }

// y = the largest of the rows of `rows` (n, numel of y). A NaN stays one.
void max_of_rows(const Tensor& rows, Tensor& y) {
  Backend& backend = backend_for(y.device());
  const std::int64_t n = y.numel();
  const bool narrow = y.dtype() == DType::bf16;
  Tensor largest = Tensor::empty({n}, DType::f32, y.device());
  Tensor next = narrow ? Tensor::empty({n}, DType::f32, y.device()) : Tensor();
  for (std::int64_t row = 0; row < rows.dim(0); ++row) {
    Tensor values = rows.narrow(row, 1).reshape({n});
    if (row == 0) {
      narrow ? backend.cast(values, largest) : largest.copy_from(values);
      continue;
    }
    if (narrow) backend.cast(values, next);
    backend.binary(BinaryOp::maximum, largest, narrow ? next : values, largest);
  }
  Tensor flat = y.reshape({n});
  narrow ? backend.cast(largest, flat) : flat.copy_from(largest);
}

class NcclCommunicator final : public Communicator, public WaitWatch {
 public:
  // Begins to connect.
  NcclCommunicator(NcclOptions options, const ncclUniqueId& id, std::shared_ptr<GroupEnd> end)
      : device_(options.device),
        timeout_(options.communicator.timeout),
        roll_call_time_(roll_call_options(options.communicator).timeout),
        hosts_(std::move(options.hosts)),
        roll_call_(std::move(options.roll_call)),
        group_(dynamic_cast<HostGroup*>(hosts_.get())),
        end_(std::move(end)),
        runtime_(runtime_for(device_)),
        link_(id, hosts_->rank(), hosts_->world_size(), device_.index, options.memory) {
    HEDDLE_CHECK(group_ != nullptr, "NCCL: a group of hosts by ", hosts_->name(), " does not compare calls");
    runtime_.add_watch(*this);
  }
  ~NcclCommunicator() override {
    runtime_.remove_watch(*this);
    // In order, so that others may still read what this rank has sent; by force if that takes too long.
    if (!end_->is_set()) link_.leave(std::min(kLeave, timeout_));
    link_.end();
  }

  // Returns when all ranks are connected.
  void connect() { settle(join_text("NCCL: connecting rank ", rank(), " of ", world_size(), " on ", device_)); }

  const char* name() const noexcept override { return "nccl"; }
  int rank() const noexcept override { return hosts_->rank(); }
  int world_size() const noexcept override { return hosts_->world_size(); }
  bool can_be_recorded() const noexcept override { return true; }
  std::string exchanged_memory() const override { return exchanged_memory_; }
  void check_alive() override {
    if (end_->is_set()) fail(end_->reason());
  }
  void abort(const std::string& reason) noexcept override {
    end_->set(reason);
    hosts_->abort(reason);
    roll_call_->abort(reason);
  }

  void waiting(Clock::duration waited) override {
    if (stopped_) return;
    if (std::this_thread::get_id() == user_.load()) {
      look(waited, recorded_);
    } else if (end_->is_set()) {
      throw CommError(end_->reason());
    }
  }

 protected:
  Tensor do_make_exchanged(const Shape& shape, DType dtype, Device device) override {
    if (device.is_cpu()) return Tensor::zeros(shape, dtype, device);
    HEDDLE_CHECK(device == device_, "NCCL: rank ", rank(), " has tensors on ", device_, ", this one is for ", device);
    user_ = std::this_thread::get_id();
    const auto nbytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
    const Stream stream = current_stream(device_);
    HEDDLE_CHECK(!is_recording(stream), "NCCL: memory for exchanges is not made in a recorded step");
    const NcclMemoryUse use = agree_on_memory(nbytes);
    if (use == NcclMemoryUse::ordinary) return Tensor::zeros(shape, dtype, device);
    // With a deadline, which a wait inside of the library has not.
    runtime_.synchronize(stream);
    std::string refusal;
    const std::shared_ptr<void> memory = link_.allocate(nbytes, &refusal);
    // One rank is enough to do without, for windows are made by all.
    if (const std::int64_t without = sum_of_hosts(memory == nullptr ? 1 : 0); without > 0) {
      if (refusal.empty()) refusal = join_text(without, " of ", world_size(), " ranks, not this one, got no other");
      exchanged_memory_ = "ordinary memory: " + refusal;
      return Tensor::zeros(shape, dtype, device);
    }
    link_.add_block(memory.get(), nbytes);
    exchanged_memory_ = enroll(use);
    Tensor tensor = Tensor::in_storage(Storage::adopt(memory.get(), nbytes, device_, memory), shape, dtype);
    tensor.fill_zero();
    return tensor;
  }
  void do_all_reduce(Tensor& x, ReduceOp op, std::string_view what) override {
    if (x.device().is_cpu()) return on_hosts([&] { hosts_->all_reduce(x, op, what); });
    void* const data = x.mutable_raw_data();
    const auto n = static_cast<std::size_t>(x.numel());
    const Request request{.call = Call::all_reduce, .op = op, .dtype = x.dtype(), .numel = x.numel()};
    if (loses_nan(x.dtype(), op)) {
      Tensor all = Tensor::empty({world_size(), x.numel()}, x.dtype(), device_);
      gather(request, x, all, what);
      return max_of_rows(all, x);
    }
    run(request, x, x, what, "ncclAllReduce", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(data, data, n, nccl_type(x.dtype()), nccl_op(op), comm, stream);
    });
  }
  void do_broadcast(Tensor& x, int root, std::string_view what) override {
    if (x.device().is_cpu()) return on_hosts([&] { hosts_->broadcast(x, root, what); });
    void* const data = rank() == root ? const_cast<void*>(x.raw_data()) : x.mutable_raw_data();
    const Request request{.call = Call::broadcast, .dtype = x.dtype(), .root = root, .numel = x.numel()};
    run(request, x, x, what, "ncclBroadcast", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(data, data, x.nbytes(), ncclUint8, root, comm, stream);
    });
  }
  void do_all_gather(const Tensor& x, Tensor& y, std::string_view what) override {
    if (x.device().is_cpu()) return on_hosts([&] { hosts_->all_gather(x, y, what); });
    gather({.call = Call::all_gather, .dtype = x.dtype(), .numel = x.numel()}, x, y, what);
  }
  void do_reduce_scatter(const Tensor& x, Tensor& y, ReduceOp op, std::string_view what) override {
    if (x.device().is_cpu()) return on_hosts([&] { hosts_->reduce_scatter(x, y, op, what); });
    const Request request{.call = Call::reduce_scatter, .op = op, .dtype = x.dtype(), .numel = x.numel()};
    if (loses_nan(x.dtype(), op)) {
      Tensor all = Tensor::empty({world_size(), x.numel()}, x.dtype(), device_);
      gather(request, x, all, what);
      // Of every rank the part that is this one's.
      Tensor parts = Tensor::empty({world_size(), y.numel()}, x.dtype(), device_);
      for (int r = 0; r < world_size(); ++r) {
        Tensor part = parts.narrow(r, 1);
        part.copy_from(all.reshape({world_size() * world_size(), y.numel()}).narrow(r * world_size() + rank(), 1));
      }
      return max_of_rows(parts, y);
    }
    void* const data = y.mutable_raw_data();
    run(request, x, y, what, "ncclReduceScatter", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(x.raw_data(), data, static_cast<std::size_t>(y.numel()), nccl_type(x.dtype()),
                               nccl_op(op), comm, stream);
    });
  }
  void do_barrier(std::string_view what) override {
    on_hosts([&] { hosts_->barrier(what); });
  }

 private:
  std::int64_t sum_of_hosts(std::int64_t mine) {
    Tensor sum = Tensor::from_values(std::vector<std::int64_t>{mine}, {1});
    on_hosts([&] { hosts_->all_reduce(sum, ReduceOp::sum, "memory for exchanges"); });
    return sum.host_data<std::int64_t>()[0];
  }

  // What the rank uses that may or can use least; all have to ask for as many bytes.
  NcclMemoryUse agree_on_memory(std::size_t nbytes) {
    const auto size = static_cast<std::int64_t>(nbytes);
    const auto own = static_cast<std::int64_t>(link_.memory().use);
    Tensor most = Tensor::from_values(std::vector<std::int64_t>{size, -size, -own}, {3});
    on_hosts([&] { hosts_->all_reduce(most, ReduceOp::max, "memory for exchanges"); });
    const std::vector<std::int64_t> values = most.to_vector<std::int64_t>();
    if (values[0] != -values[1]) {
      fail(join_text("the ranks ask for different memory for exchanges: rank ", rank(), " for ", nbytes,
                     " bytes, others for ", -values[1], " to ", values[0]));
    }
    const auto use = static_cast<NcclMemoryUse>(-values[2]);
    shortfall_ = link_.memory().shortfall;
    if (use < link_.memory().use) {
      shortfall_ = "another rank's HEDDLE_NCCL_MEMORY or NCCL has it so";
    }
    if (use == NcclMemoryUse::ordinary) exchanged_memory_ = "ordinary memory" + with_reason(": ", shortfall_);
    return use;
  }

  static std::string with_reason(const char* join, const std::string& reason) {
    return reason.empty() ? std::string() : join + reason;
  }

  // Makes the last block known to NCCL. Returns how. Without that it is still of use: NCCL sends from it as from any
  // other.
  std::string enroll(NcclMemoryUse use) {
    std::string refusal = shortfall_;
    if (use == NcclMemoryUse::windows) {
      bool refused_here = false;
      try {
        link_.begin_window();
      } catch (const CommError& error) {
        refusal = error.what();
        refused_here = true;
      }
      // Where some were refused, the others' NCCL waits for them.
      const std::int64_t refused = sum_of_hosts(refused_here ? 1 : 0);
      if (refused > 0 && refused < world_size()) {
        fail(join_text("NCCL refused ", refused, " of ", world_size(), " ranks a window of memory for exchanges",
                       with_reason(": ", refusal), kWayOut));
      }
      settle("NCCL: registering a window of memory for exchanges", kWayOut);
      if (link_.is_known()) return "a window of NCCL's memory";
    }
    try {
      link_.add_buffer();
    } catch (const CommError& error) {
      return join_text("NCCL's memory, not registered: ", error.what());
    }
    settle("NCCL: registering memory for exchanges", kWayOut);
    if (!link_.is_known()) return "NCCL's memory, not registered: NCCL registers nothing here (NCCL_LOCAL_REGISTER?)";
    return "registered memory of NCCL" + with_reason(", without a window: ", refusal);
  }

  static ncclRedOp_t nccl_op(ReduceOp op) { return op == ReduceOp::sum ? ncclSum : ncclMax; }

  void gather(const Request& request, const Tensor& x, Tensor& y, std::string_view what) {
    void* const data = y.mutable_raw_data();
    run(request, x, y, what, "ncclAllGather", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(x.raw_data(), data, x.nbytes(), ncclUint8, comm, stream);
    });
  }

  // Compares with the other ranks, queues the call on the current stream, and unless it is recorded waits for it: then
  // no work of NCCL is under way while a library loads its kernels or asks for memory, for which a GPU may have to
  // stand still on one rank and so, through NCCL, on all.
  template <class Start>
  void run(Request request, const Tensor& x, const Tensor& y, std::string_view what, const char* call,
           const Start& start) {
    HEDDLE_CHECK(x.device() == device_, "NCCL: rank ", rank(), " has tensors on ", device_, ", this one is on ",
                 x.device());
    user_ = std::this_thread::get_id();
    const Stream stream = current_stream(device_);
    request.place = is_recording(stream) ? Place::recorded : Place::gpu;
    request.exchanged_input = link_.place_of(x.raw_data());
    request.exchanged_output = link_.place_of(y.raw_data());
    on_hosts([&] { group_->agree(request, what); });
    const std::string deed = describe(request, what);
    runtime_.prepare_launch(call);
    try {
      link_.call(call, [&](ncclComm_t comm) { return start(comm, static_cast<cudaStream_t>(stream.handle)); });
    } catch (const CommError& error) {
      fail(join_text(deed, ": ", error.what()));
    }
    settle(deed);
    if (request.place == Place::recorded) {
      recorded_ = join_text("the work of ", device_, ", the last call in it ", deed);
      return;
    }
    const Clock::time_point begin = Clock::now();
    for (int looks = 0; !runtime_.is_done(stream); ++looks) {
      look(Clock::now() - begin, deed);
      pause(looks);
    }
    look({}, deed);
  }

  static bool is_recording(Stream stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.handle), &status);
    if (error == cudaSuccess) return status != cudaStreamCaptureStatusNone;
    cudaGetLastError();
    throw DeviceError(join_text("CUDA: cudaStreamIsCapturing failed with ", cudaGetErrorName(error)));
  }

  // What the hosts find ends the group on the GPUs too.
  template <class Exchange>
  void on_hosts(const Exchange& exchange) {
    user_ = std::this_thread::get_id();
    check_alive();
    try {
      exchange();
    } catch (const CommError& error) {
      fail(error.what());
    }
  }

  // Until NCCL has begun what it was asked for.
  void settle(const std::string& deed, const char* way_out = "") {
    const Clock::time_point begin = Clock::now();
    for (int looks = 0; look(Clock::now() - begin, deed, way_out) == ncclInProgress; ++looks) pause(looks);
  }

  // Ends a wait that has no other end. By the thread that makes the calls. Returns whether NCCL is still at its
  // beginning. way_out: for the user, at the end of the message.
  ncclResult_t look(Clock::duration waited, const std::string& deed, const char* way_out = "") {
    if (end_->is_set()) fail(end_->reason());
    const ncclResult_t state = link_.state();
    if (state != ncclSuccess && state != ncclInProgress) fail(join_text(deed, ": ", link_.describe(state), way_out));
    if (waited <= timeout_ - roll_call_time_) return state;
    fail(join_text(deed, " has not ended within ", seconds(waited), " s: ", who_is_late(), way_out));
  }

  // Ranks that wait for their GPUs come; those that do not are the reason.
  std::string who_is_late() {
    try {
      roll_call_->barrier("roll call");
    } catch (const CommError& error) {
      return error.what();
    }
    return join_text("all ", world_size(), " ranks wait for their GPUs");
  }

  [[noreturn]] void fail(const std::string& reason) {
    abort(reason);
    stopped_ = true;
    link_.abort();
    throw CommError(end_->reason());
  }

  const Device device_;
  const milliseconds timeout_, roll_call_time_;
  std::unique_ptr<Communicator> hosts_, roll_call_;
  HostGroup* const group_;  // of hosts_
  const std::shared_ptr<GroupEnd> end_;
  DeviceRuntime& runtime_;
  std::atomic<std::thread::id> user_{std::thread::id()};  // the thread that makes the calls
  std::atomic<bool> stopped_{false};                      // NCCL's work on the GPU has been ended
  std::string recorded_ = "the work of the GPU";          // what a wait outside of a call is for
  std::string exchanged_memory_ = "ordinary memory";
  std::string shortfall_;  // why it is no better memory
  NcclLink link_;
};

ncclUniqueId new_id() {
  ncclUniqueId id{};
  check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return id;
}

// Rank 0's id, on all ranks.
ncclUniqueId share_id(Communicator& hosts) {
  ncclUniqueId id{};
  if (hosts.rank() == 0) {
    try {
      id = new_id();
    } catch (const CommError& error) {
      hosts.abort(error.what());
      throw;
    }
  }
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(&id);
  std::vector<std::uint8_t> bytes(begin, begin + sizeof id);
  Tensor message = Tensor::from_values(bytes, {static_cast<std::int64_t>(bytes.size())});
  hosts.broadcast(message, 0, "NCCL's id of the group");
  bytes = message.to_vector<std::uint8_t>();
  std::memcpy(&id, bytes.data(), sizeof id);
  return id;
}

}  // namespace

std::string nccl_library_memory() {
  try {
    const NcclMemoryCalls calls = find_nccl_memory_calls(nccl_memory_setting());
    const char* const names[] = {"ordinary memory", "registered buffers", "windows"};
    return names[static_cast<std::size_t>(calls.use)] +
           (calls.shortfall.empty() ? std::string() : ": " + calls.shortfall);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

int nccl_library_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

void make_nccl_communicators(NcclOptions* ranks, std::size_t count, std::unique_ptr<Communicator>* made) {
  for (std::size_t i = 0; i < count; ++i) {
    HEDDLE_CHECK(!ranks[i].device.is_cpu(), "NCCL: a rank has tensors on a GPU, this one is to have them on ",
                 ranks[i].device);
    HEDDLE_CHECK(ranks[i].hosts != nullptr && ranks[i].roll_call != nullptr &&
                     ranks[i].hosts->rank() == ranks[i].roll_call->rank() &&
                     ranks[i].hosts->world_size() == ranks[i].roll_call->world_size(),
                 "NCCL: two groups of the same ranks' hosts are needed");
  }
  const bool whole = count == static_cast<std::size_t>(ranks[0].hosts->world_size());
  const ncclUniqueId id = whole ? new_id() : share_id(*ranks[0].hosts);
  const auto end = std::make_shared<GroupEnd>();
  std::vector<std::unique_ptr<NcclCommunicator>> group;
  try {
    for (std::size_t i = 0; i < count; ++i) {
      group.push_back(std::make_unique<NcclCommunicator>(std::move(ranks[i]), id, end));
    }
    for (const auto& one : group) one->connect();
  } catch (const std::exception& error) {
    // Those that are made already do not wait for others when they go.
    end->set(error.what());
    throw;
  }
  for (std::size_t i = 0; i < count; ++i) made[i] = std::move(group[i]);
}

}  // namespace heddle::comm
