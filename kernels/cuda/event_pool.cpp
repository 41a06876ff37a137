#include "kernels/cuda/event_pool.h"

#include "kernels/launch/check.h"

namespace heddle::cuda {

EventPool::~EventPool() {
  for (cudaEvent_t event : spare_) cudaEventDestroy(event);
}

std::shared_ptr<void> EventPool::take() {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      event = spare_.back();
      spare_.pop_back();
    }
  }
  if (event == nullptr) HEDDLE_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return {event, [pool = shared_from_this()](void* e) { pool->give_back(static_cast<cudaEvent_t>(e)); }};
}

void EventPool::give_back(cudaEvent_t event) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    spare_.push_back(event);
  } catch (...) {
    cudaEventDestroy(event);
  }
}

}  // namespace heddle::cuda
