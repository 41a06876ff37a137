// Events of one GPU that are used again, since making one costs microseconds. Used by CudaRuntime.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

namespace heddle::cuda {

// Thread-safe.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  EventPool() = default;
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // An event for ordering only (it measures no time) of the current device. It comes back with the last copy of the
  // pointer, which keeps the pool alive.
  std::shared_ptr<void> take();

 private:
  void give_back(cudaEvent_t event) noexcept;

  std::mutex mutex_;
  std::vector<cudaEvent_t> spare_;
};

}  // namespace heddle::cuda
