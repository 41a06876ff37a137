// Copies from ordinary host memory to a GPU through page-locked buffers, so that the caller may reuse its memory at
// once and does not wait for work queued before. Used by CudaRuntime.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <mutex>

#include "engine/device/device_runtime.h"

namespace heddle::cuda {

// Two buffers that take turns. Thread-safe.
class StagingBuffers {
 public:
  static constexpr std::size_t kNbytes = std::size_t{4} << 20;  // of one buffer

  StagingBuffers() = default;
  ~StagingBuffers();
  StagingBuffers(const StagingBuffers&) = delete;
  StagingBuffers& operator=(const StagingBuffers&) = delete;

  // Copies to memory of the current device in stream order. Waits only for its own earlier copies, when both buffers
  // are taken. Throws: DeviceError, what a watch of the runtime throws.
  void copy(void* destination, const void* source, std::size_t nbytes, cudaStream_t stream, DeviceRuntime& runtime);

 private:
  struct Buffer {
    void* data = nullptr;
    cudaEvent_t copied = nullptr;  // the last copy out of it
  };
  static void prepare(Buffer& buffer, DeviceRuntime& runtime);

  std::mutex mutex_;
  std::array<Buffer, 2> buffers_{};
  std::size_t next_ = 0;
};

}  // namespace heddle::cuda
