// Putting operations into streams: what internal.h offers to the libraries' faces, and the rules of streams.
#include <algorithm>

#include "tests/cudasim/capture.h"
#include "tests/cudasim/device_fault.h"
#include "tests/cudasim/machine.h"

namespace cudasim {
namespace {

// Whether every access lies in one live allocation that the device may use. Copies may cross devices.
bool accesses_are_valid(const Op& op) {
  for (const Access& access : op.accesses) {
    const Allocation* allocation = find_allocation(access.data);
    if (allocation == nullptr) return false;
    if (!allocation->contains(reinterpret_cast<std::uintptr_t>(access.data), access.nbytes)) return false;
    if (op.kind != OpKind::copy && !reaches(op.device, allocation->device)) return false;
  }
  return true;
}

}  // namespace

OpPtr make_marker(std::string name, int device) {
  const auto op = std::make_shared<Op>();
  op->name = std::move(name);
  op->marker = true;
  op->device = device;
  return op;
}

void queue_now(Stream& stream, const OpPtr& op) {
  op->device = stream.device;
  op->stream_number = stream.number;
  op->dependencies.push_back(stream.last);
  Device& owner = device(stream.device);
  if (stream.legacy()) {
    for (const auto& [handle, other] : streams().all()) {
      if (other->device == stream.device && other->blocking()) op->dependencies.push_back(other->last);
    }
  } else if (stream.blocking()) {
    op->dependencies.push_back(owner.legacy->last);
  }
  stream.last = op;
  if (op->join) op->collective = op->join();
  submit(op);
}

cudaError_t queue(const std::shared_ptr<Stream>& stream, const OpPtr& op, const void* function) {
  op->device = stream->device;
  if (stream->capture != nullptr) return record_operation(*stream, *op, function);
  if (stream->legacy()) {
    if (const cudaError_t error = check_legacy_stream(stream->device); error != cudaSuccess) return error;
  }
  op->stream_number = stream->number;
  if (!op->marker) count_operation(*op, false);
  queue_now(*stream, op);
  return cudaSuccess;
}

cudaError_t enqueue_op(cudaStream_t handle, const OpPtr& op, std::vector<Access> accesses, const void* function) {
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (stream == nullptr || stream->device != current_device()) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = sticky_error(stream->device); error != cudaSuccess) return error;
  std::erase_if(accesses, [](const Access& access) { return access.nbytes == 0; });
  op->accesses = std::move(accesses);
  op->device = stream->device;
  if (!accesses_are_valid(*op)) return cudaErrorInvalidValue;
  return queue(stream, op, function);
}

CUDASIM_API cudaError_t enqueue(cudaStream_t stream, const char* name, OpKind kind, std::vector<Access> accesses,
                                std::function<void()> body) {
  const Lock lock;
  const auto op = std::make_shared<Op>();
  op->name = name;
  op->kind = kind;
  op->body = std::move(body);
  return enqueue_op(stream, op, std::move(accesses), nullptr);
}

CUDASIM_API std::shared_ptr<Collective> make_collective(int participants, std::function<void()> body) {
  const auto collective = std::make_shared<Collective>();
  collective->participants = participants;
  collective->body = std::move(body);
  return collective;
}

CUDASIM_API cudaError_t enqueue_collective(cudaStream_t stream, const char* name, std::vector<Access> accesses,
                                           std::function<std::shared_ptr<Collective>()> join) {
  const Lock lock;
  const auto op = std::make_shared<Op>();
  op->name = name;
  op->kind = OpKind::collective;
  op->join = std::move(join);
  return enqueue_op(stream, op, std::move(accesses), nullptr);
}

CUDASIM_API void* host_view_bytes(const void* device_pointer, std::size_t nbytes, bool write) {
  const Op* op = running_op();
  if (op == nullptr) die("host_view() outside of the body of an operation");
  if (nbytes == 0) return nullptr;
  const auto* begin = static_cast<const char*>(device_pointer);
  bool declared = false;
  for (const Access& access : op->accesses) {
    const auto* other = static_cast<const char*>(access.data);
    const bool inside = begin >= other && begin + nbytes <= other + access.nbytes;
    // What is written may be read back, too.
    declared = declared || (inside && (access.write || !write));
  }
  if (!declared) {
    die("%s uses %zu bytes at %p for %s, which it has not declared", op->name.c_str(), nbytes, device_pointer,
        write ? "writing" : "reading");
  }
  const Allocation* allocation = find_allocation(device_pointer);
  if (allocation == nullptr || !allocation->contains(reinterpret_cast<std::uintptr_t>(device_pointer), nbytes)) {
    char text[256];
    describe_address(reinterpret_cast<std::uintptr_t>(device_pointer), text, sizeof(text));
    set_last_report(op->name + ": illegal access to " + text);
    throw DeviceFault{};
  }
  return reinterpret_cast<void*>(allocation->data() +
                                 (reinterpret_cast<std::uintptr_t>(device_pointer) - allocation->address));
}

CUDASIM_API bool is_device_pointer(const void* pointer) { return device_of_address(pointer) >= 0; }

CUDASIM_API bool is_reachable(const void* pointer, std::size_t nbytes) {
  const Lock lock;
  const Allocation* allocation = find_allocation(pointer);
  return allocation != nullptr && allocation->contains(reinterpret_cast<std::uintptr_t>(pointer), nbytes);
}

}  // namespace cudasim
