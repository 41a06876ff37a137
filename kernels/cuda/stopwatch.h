// Two events that tell how long a device worked on what was queued between them. Used to choose plans and by
// DeviceRuntime::make_stopwatch().
#pragma once

#include <cuda_runtime_api.h>

#include "engine/device/device_runtime.h"
#include "kernels/launch/check.h"

namespace heddle::cuda {

class CudaStopwatch final : public Stopwatch {
 public:
  // Of the current device. Throws: DeviceError, as the others.
  CudaStopwatch() {
    HEDDLE_CUDA_CHECK(cudaEventCreate(&begin_));
    if (const cudaError_t error = cudaEventCreate(&end_); error != cudaSuccess) {
      cudaEventDestroy(begin_);
      check(error, "cudaEventCreate");
    }
  }
  ~CudaStopwatch() override {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  CudaStopwatch(const CudaStopwatch&) = delete;
  CudaStopwatch& operator=(const CudaStopwatch&) = delete;
  void start(Stream stream) override { HEDDLE_CUDA_CHECK(cudaEventRecord(begin_, handle_of(stream))); }
  double stop(Stream stream) override {
    HEDDLE_CUDA_CHECK(cudaEventRecord(end_, handle_of(stream)));
    HEDDLE_CUDA_CHECK(cudaEventSynchronize(end_));
    float milliseconds = 0;
    HEDDLE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return double{milliseconds} * 1e-3;
  }

 private:
  static cudaStream_t handle_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace heddle::cuda
