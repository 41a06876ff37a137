// The collectives of the simulated NCCL. Each rank queues its part; the last one's coming completes the collective,
// which then runs once for all: sums go from rank 0 upwards, so that all ranks have the same bits. Ranks that call
// different things end the process with a report, where NCCL would hang or mix up data.
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/cudasim/library_face.h"
#include "tests/cudasim/lock.h"
#include "tests/cudasim/machine.h"
#include "tests/cudasim/nccl_communicator.h"

namespace cudasim {
namespace {

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "ncclAllReduce";
    case CollectiveKind::broadcast: return "ncclBroadcast";
    case CollectiveKind::all_gather: return "ncclAllGather";
    case CollectiveKind::reduce_scatter: return "ncclReduceScatter";
  }
  return "";
}

ElementType type_of(const CollectiveShape& shape) {
  ElementType type = ElementType::float32;
  find_nccl_type(shape.type, &type);
  return type;
}

std::string describe(const CollectiveShape& shape) {
  std::string text = std::string(name_of(shape.kind)) + " of " + std::to_string(shape.count) + " " +
                     element_name(type_of(shape)) + " elements";
  if (shape.kind == CollectiveKind::broadcast) return text + " from rank " + std::to_string(shape.root);
  if (shape.kind == CollectiveKind::all_gather) return text;
  return text + ", operation " + std::to_string(shape.op);
}

// Elements that a rank gives and gets.
std::int64_t send_count(const CollectiveShape& shape, int ranks) {
  return shape.kind == CollectiveKind::reduce_scatter ? shape.count * ranks : shape.count;
}
std::int64_t receive_count(const CollectiveShape& shape, int ranks) {
  return shape.kind == CollectiveKind::all_gather ? shape.count * ranks : shape.count;
}
bool gives(const CollectiveShape& shape, int rank) {
  return shape.kind != CollectiveKind::broadcast || rank == shape.root;
}

template <class T>
T combine(ncclRedOp_t op, T sum, T value) {
  switch (op) {
    case ncclProd: return static_cast<T>(sum * value);
    case ncclMax: return std::max(sum, value);
    case ncclMin: return std::min(sum, value);
    default: return static_cast<T>(sum + value);
  }
}

// The result of a reduction in the ranks' order, as stored bytes.
template <class T>
std::vector<unsigned char> reduce_as(const CollectiveShape& shape, const std::vector<const void*>& inputs,
                                     std::int64_t numel) {
  const auto at = [&](std::size_t rank, std::int64_t i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(inputs[rank]) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  };
  std::vector<unsigned char> bytes(static_cast<std::size_t>(numel) * sizeof(T));
  for (std::int64_t i = 0; i < numel; ++i) {
    T sum = at(0, i);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) sum = combine(shape.op, sum, at(rank, i));
    if (shape.op == ncclAvg) sum = static_cast<T>(sum / static_cast<T>(inputs.size()));
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &sum, sizeof(T));
  }
  return bytes;
}

// 16-bit floats are summed in float and rounded once.
std::vector<unsigned char> reduce_16_bit(const CollectiveShape& shape, const std::vector<const void*>& inputs,
                                         std::int64_t numel) {
  const ElementType type = type_of(shape);
  const auto count = static_cast<std::size_t>(numel);
  std::vector<double> sums(count), values(count);
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    read_elements(inputs[rank], {.type = type, .n = numel}, rank == 0 ? sums.data() : values.data());
    for (std::size_t i = 0; rank > 0 && i < count; ++i) {
      sums[i] = combine(shape.op, static_cast<float>(sums[i]), static_cast<float>(values[i]));
    }
  }
  if (shape.op == ncclAvg) {
    for (double& sum : sums) sum /= static_cast<double>(inputs.size());
  }
  std::vector<unsigned char> bytes(bytes_of(type, numel));
  write_elements(bytes.data(), {.type = type, .n = numel}, sums.data());
  return bytes;
}

std::vector<unsigned char> reduce(const CollectiveShape& shape, const std::vector<const void*>& inputs,
                                  std::int64_t numel) {
  switch (shape.type) {
    case ncclInt8: return reduce_as<std::int8_t>(shape, inputs, numel);
    case ncclUint8: return reduce_as<std::uint8_t>(shape, inputs, numel);
    case ncclInt32: return reduce_as<std::int32_t>(shape, inputs, numel);
    case ncclInt64: return reduce_as<std::int64_t>(shape, inputs, numel);
    case ncclFloat64: return reduce_as<double>(shape, inputs, numel);
    case ncclFloat32: return reduce_as<float>(shape, inputs, numel);
    default: return reduce_16_bit(shape, inputs, numel);
  }
}

// The registration of a rank that a buffer of the call lies in, null if in none. Ends the process if NCCL was told
// about it when the call was made, and does not know it any more.
const Registration* registration_of(const Clique& clique, const CollectiveShape& shape, int rank, void* handle) {
  if (handle == nullptr) return nullptr;
  const auto& registered = clique.registered[static_cast<std::size_t>(rank)];
  const auto found = registered.find(handle);
  if (found == registered.end()) {
    die("%s: rank %d's memory was registered when the call was made, and has been deregistered before it ran",
        name_of(shape.kind), rank);
  }
  return &found->second;
}

// Where a buffer lies: in which window and at which place of it, or in none.
struct WindowPlace {
  std::optional<std::size_t> window{};
  std::ptrdiff_t offset = 0;
  bool operator==(const WindowPlace&) const = default;
};

// Ends the process unless all ranks that use the buffer are at one place of one window, or none is in a window: kernels
// find the other ranks' memory by their own place. Returns whether they are in one.
bool in_one_window(const CollectiveCall& call, bool sent) {
  std::optional<WindowPlace> first;
  for (int rank = 0; rank < call.clique->size; ++rank) {
    if (sent && !gives(call.shape, rank)) continue;
    const CollectiveCall::Buffers& buffers = call.buffers[static_cast<std::size_t>(rank)];
    const Registration* const registration = registration_of(
        *call.clique, call.shape, rank, sent ? buffers.send_registration : buffers.receive_registration);
    WindowPlace place;
    if (registration != nullptr && registration->window) {
      place = {registration->window,
               static_cast<const char*>(sent ? buffers.send : buffers.receive) - registration->data};
    }
    if (!first) first = place;
    if (place == *first) continue;
    die("%s: rank %d works at another place of windows, or outside of them, than others", name_of(call.shape.kind),
        rank);
  }
  return first && first->window;
}

// Runs a complete collective: all inputs are read before anything is written.
void run(const CollectiveCall& call) {
  const bool sends_from_one = in_one_window(call, true);
  if (in_one_window(call, false) && sends_from_one) mutable_counters().collectives_in_windows += call.clique->size;
  const CollectiveShape& shape = call.shape;
  const int ranks = static_cast<int>(call.buffers.size());
  const ElementType type = type_of(shape);
  const std::size_t given = bytes_of(type, send_count(shape, ranks));
  std::vector<const void*> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!gives(shape, rank)) continue;
    inputs.push_back(host_view_bytes(call.buffers[static_cast<std::size_t>(rank)].send, given, false));
  }
  std::vector<unsigned char> result;
  if (shape.kind == CollectiveKind::all_reduce || shape.kind == CollectiveKind::reduce_scatter) {
    result = reduce(shape, inputs, send_count(shape, ranks));
  } else {
    for (const void* input : inputs) {
      const auto* bytes = static_cast<const unsigned char*>(input);
      result.insert(result.end(), bytes, bytes + given);
    }
  }
  const std::size_t got = bytes_of(type, receive_count(shape, ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t first = shape.kind == CollectiveKind::reduce_scatter ? static_cast<std::size_t>(rank) * got : 0;
    std::memcpy(host_view_bytes(call.buffers[static_cast<std::size_t>(rank)].receive, got, true), result.data() + first,
                got);
  }
}

// A rank queues its next collective: finds or makes the communicator's call of that number.
std::shared_ptr<Collective> join(ncclComm_t comm, const CollectiveShape& shape,
                                 const CollectiveCall::Buffers& buffers) {
  if (!is_communicator(comm)) die("%s: a graph uses a communicator that is gone", name_of(shape.kind));
  Clique& clique = *comm->clique;
  const std::uint64_t number = comm->next_call++;
  std::shared_ptr<CollectiveCall>& place = clique.calls[number];
  if (place == nullptr) {
    place = std::make_shared<CollectiveCall>();
    place->shape = shape;
    place->clique = comm->clique;
    place->buffers.resize(static_cast<std::size_t>(clique.size));
  }
  const std::shared_ptr<CollectiveCall> call = place;
  if (!(call->shape == shape)) {
    die("mismatch: rank %d calls %s, others %s, both as number %llu of their communicator", comm->rank,
        describe(shape).c_str(), describe(call->shape).c_str(), static_cast<unsigned long long>(number));
  }
  std::shared_ptr<Collective> collective = call->collective.lock();
  if (collective == nullptr) {
    collective = make_collective(clique.size, [call] { run(*call); });
    call->collective = collective;
  }
  registration_of(clique, shape, comm->rank, buffers.send_registration);
  registration_of(clique, shape, comm->rank, buffers.receive_registration);
  call->buffers[static_cast<std::size_t>(comm->rank)] = buffers;
  call->ranks.push_back(comm->rank);
  call->threads.push_back(std::this_thread::get_id());
  if (static_cast<int>(call->ranks.size()) == clique.size) clique.calls.erase(number);
  return collective;
}

class DeviceScope {
 public:
  explicit DeviceScope(int device) : before_(current_device()) { set_current_device(device); }
  ~DeviceScope() { set_current_device(before_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_;
};

// Whether the two ranges touch in any way but the one in which the collective works in place.
bool overlap_is_wrong(const CollectiveShape& shape, const CollectiveCall::Buffers& buffers, int ranks, int rank) {
  const auto* send = static_cast<const char*>(buffers.send);
  const auto* receive = static_cast<const char*>(buffers.receive);
  const ElementType type = type_of(shape);
  const std::size_t sent = bytes_of(type, send_count(shape, ranks)), got = bytes_of(type, receive_count(shape, ranks));
  if (send + sent <= receive || receive + got <= send) return false;
  const auto part = static_cast<std::ptrdiff_t>(bytes_of(type, shape.count)) * rank;
  switch (shape.kind) {
    case CollectiveKind::all_gather: return send != receive + part;
    case CollectiveKind::reduce_scatter: return receive != send + part;
    default: return send != receive;
  }
}

ncclResult_t start(ncclComm_t comm, const CollectiveShape& shape, const CollectiveCall::Buffers& buffers,
                   cudaStream_t stream) {
  const char* name = name_of(shape.kind);
  if (!is_communicator(comm)) return nccl_failure(ncclInvalidArgument, "no communicator");
  Clique& clique = *comm->clique;
  if (!clique.complete()) return nccl_failure(ncclInvalidUsage, "the communicator is not ready");
  const auto waiting = clique.calls.find(comm->next_call);
  if (!in_group() && waiting != clique.calls.end()) {
    const auto& threads = waiting->second->threads;
    if (std::find(threads.begin(), threads.end(), std::this_thread::get_id()) != threads.end()) {
      return nccl_failure(ncclInvalidUsage, "one thread calls for several ranks outside of a group: NCCL may hang");
    }
  }
  const ElementType type = type_of(shape);
  std::vector<Access> accesses;
  if (gives(shape, comm->rank)) {
    accesses.push_back({buffers.send, bytes_of(type, send_count(shape, clique.size)), false});
  }
  accesses.push_back({buffers.receive, bytes_of(type, receive_count(shape, clique.size)), true});
  if (gives(shape, comm->rank) && overlap_is_wrong(shape, buffers, clique.size, comm->rank)) {
    return nccl_failure(ncclInvalidArgument, "input and output overlap, but not in place");
  }
  CollectiveCall::Buffers known = buffers;
  known.send_registration = find_registration(*comm, known.send, bytes_of(type, send_count(shape, clique.size)));
  known.receive_registration =
      find_registration(*comm, known.receive, bytes_of(type, receive_count(shape, clique.size)));
  // NCCL works on the communicator's device whatever the caller's is.
  const DeviceScope scope(comm->device);
  const cudaError_t error =
      enqueue_collective(stream, name, std::move(accesses), [comm, shape, known] { return join(comm, shape, known); });
  if (error == cudaSuccess) return ncclSuccess;
  return nccl_failure(ncclUnhandledCudaError, std::string(name) + ": CUDA error " + std::to_string(error));
}

ncclResult_t call(ncclComm_t comm, const CollectiveShape& shape, const CollectiveCall::Buffers& buffers,
                  cudaStream_t stream) {
  const Lock lock;
  if (const int result = injected_library(name_of(shape.kind))) {
    return nccl_failure(static_cast<ncclResult_t>(result), "asked for");
  }
  if (!is_communicator(comm)) return nccl_failure(ncclInvalidArgument, "no communicator");
  ElementType type{};
  if (!find_nccl_type(shape.type, &type)) return nccl_failure(ncclInvalidArgument, "unknown data type");
  if (shape.op < ncclSum || shape.op > ncclAvg) return nccl_failure(ncclInvalidArgument, "unknown reduction");
  if (shape.root < 0 || shape.root >= comm->clique->size) return nccl_failure(ncclInvalidArgument, "no such root");
  if (shape.count == 0) return ncclSuccess;
  if (buffers.receive == nullptr || (gives(shape, comm->rank) && buffers.send == nullptr)) {
    return nccl_failure(ncclInvalidArgument, "a null pointer");
  }
  return now_or_at_group_end([=] { return start(comm, shape, buffers, stream); });
}

}  // namespace

bool find_nccl_type(ncclDataType_t data_type, ElementType* type) {
  switch (data_type) {
    case ncclInt8: *type = ElementType::int8; return true;
    case ncclUint8: *type = ElementType::uint8; return true;
    case ncclInt32: *type = ElementType::int32; return true;
    case ncclInt64: *type = ElementType::int64; return true;
    case ncclFloat16: *type = ElementType::float16; return true;
    case ncclFloat32: *type = ElementType::float32; return true;
    case ncclFloat64: *type = ElementType::float64; return true;
    case ncclBfloat16: *type = ElementType::bfloat16; return true;
    default: return false;
  }
}

void leave_collectives(const ncclComm& comm) {
  for (const auto& [number, call] : comm.clique->calls) {
    const std::shared_ptr<Collective> collective = call->collective.lock();
    if (collective == nullptr) continue;
    const auto found = std::find(call->ranks.begin(), call->ranks.end(), comm.rank);
    if (found == call->ranks.end()) continue;
    const CollectiveCall::Buffers& buffers = call->buffers[static_cast<std::size_t>(comm.rank)];
    for (void* const handle : {buffers.send_registration, buffers.receive_registration}) {
      const Registration* const registration = registration_of(*comm.clique, call->shape, comm.rank, handle);
      if (registration == nullptr || !registration->window || nccl_version() >= kWindowsEndSince) continue;
      die("ncclCommAbort: rank %d waits in the windows of a %s, and NCCL %d's kernels there do not look at the flag "
          "that "
          "aborts them: on a real machine this hangs",
          comm.rank, name_of(call->shape.kind), nccl_version());
    }
    const auto i = found - call->ranks.begin();
    std::vector<std::weak_ptr<Op>>& joined = collective->joined;
    if (const OpPtr op = joined[static_cast<std::size_t>(i)].lock()) op->collective = nullptr;
    joined.erase(joined.begin() + i);
    call->ranks.erase(found);
    call->threads.erase(call->threads.begin() + i);
  }
  notify_all();
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUDASIM_API ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {CollectiveKind::all_reduce, static_cast<std::int64_t>(count), type, op, 0}, {send, receive},
              stream);
}

CUDASIM_API ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                                       ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {CollectiveKind::broadcast, static_cast<std::int64_t>(count), type, ncclSum, root}, {send, receive},
              stream);
}

CUDASIM_API ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                                       ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {CollectiveKind::all_gather, static_cast<std::int64_t>(count), type, ncclSum, 0}, {send, receive},
              stream);
}

CUDASIM_API ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {CollectiveKind::reduce_scatter, static_cast<std::int64_t>(count), type, op, 0}, {send, receive},
              stream);
}

}  // extern "C"
