// The simulated machine: its devices, and the handles that the program holds. Used by all CUDA functions. Everything
// here needs the lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cudasim/internal.h"
#include "tests/cudasim/memory.h"
#include "tests/cudasim/schedule.h"

namespace cudasim {

struct Capture;

struct Stream {
  cudaStream_t handle = nullptr;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  // 0 for the legacy stream of a device.
  std::int64_t number = 0;
  OpPtr last;
  // While the stream is being captured: the capture, and the nodes that its next operation comes after.
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> capture_tail;

  bool legacy() const { return number == 0; }
  bool blocking() const { return !legacy() && (flags & cudaStreamNonBlocking) == 0; }
};

struct Event {
  int device = 0;
  unsigned flags = 0;
  OpPtr op;
  // If it was last recorded in a stream that was being captured.
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> capture_nodes;
};

// Handles of one kind. Their values are never used twice, so that a destroyed handle is always found out.
template <class T>
class HandleTable {
 public:
  explicit HandleTable(std::uintptr_t tag) : tag_(tag << 40) {}
  template <class Handle>
  std::shared_ptr<T> add(std::shared_ptr<T> object, Handle* handle) {
    next_ += 64;
    *handle = reinterpret_cast<Handle>(tag_ + next_);
    objects_.emplace(tag_ + next_, object);
    return object;
  }
  std::shared_ptr<T> find(const void* handle) const {
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }
  // Returns what it was, nullptr if there is no such handle.
  std::shared_ptr<T> remove(const void* handle) {
    const std::shared_ptr<T> object = find(handle);
    if (object != nullptr) objects_.erase(reinterpret_cast<std::uintptr_t>(handle));
    return object;
  }
  void clear() { objects_.clear(); }
  const std::map<std::uintptr_t, std::shared_ptr<T>>& all() const { return objects_; }

 private:
  std::uintptr_t tag_;
  std::uintptr_t next_ = 0;
  std::map<std::uintptr_t, std::shared_ptr<T>> objects_;
};

struct Device {
  cudaError_t sticky = cudaSuccess;
  std::shared_ptr<Stream> legacy;
  bool peer_enabled[kMaxDevices] = {};
};

int device_count();
// Of every device: 90 for sm_90.
int device_capability();
Device& device(int index);
// Reads the environment at the first call, makes devices; cheap afterwards.
void start_machine();
// Destroys everything that belongs to a device, as cudaDeviceReset does.
void reset_device(int index);

HandleTable<Stream>& streams();
HandleTable<Event>& events();
// The stream of a handle, the legacy one of the current device for nullptr; nullptr if there is none.
std::shared_ptr<Stream> find_stream(cudaStream_t handle);

// ---- Errors ----------------------------------------------------------------------------------------------------

void set_sticky_error(int device, cudaError_t error);
// Remembers the calling thread's last error unless it is cudaSuccess; returns it.
cudaError_t set_last_error(cudaError_t error);
cudaError_t last_error();
void clear_last_error();

void set_current_device(int index);

// ---- Counting ----------------------------------------------------------------------------------------------------

Counters& mutable_counters();
void count_host_wait();
// Counts and traces one queued operation.
void count_operation(const Op& op, bool in_graph);
void clear_trace();
// Forgets the handles of libraries.
void clear_handles();

// ---- Queueing ----------------------------------------------------------------------------------------------------

// Queues an operation on a stream or records it in the stream's capture. Fills in what depends on the stream.
// function is what a captured kernel is compared by when a graph is updated.
cudaError_t queue(const std::shared_ptr<Stream>& stream, const OpPtr& op, const void* function);
// The checks of enqueue() (internal.h), then queue().
cudaError_t enqueue_op(cudaStream_t stream, const OpPtr& op, std::vector<Access> accesses, const void* function);
// queue() without capture and counting: dependencies and the stream's last operation.
void queue_now(Stream& stream, const OpPtr& op);
OpPtr make_marker(std::string name, int device);
// Whether device may use memory of another device (or kHost) in kernels.
bool reaches(int device, int other);

}  // namespace cudasim
