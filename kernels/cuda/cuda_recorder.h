// Records a stream into a CUDA graph. Contracts: StreamRecorder in engine/device/device_runtime.h.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/device/device_runtime.h"

namespace heddle::cuda {

// True while the calling thread records a stream: it must not wait for the device or copy from ordinary host memory.
bool is_recording() noexcept;

// While it lives, the calling thread may do what is harmless in a recording though CUDA forbids it by default: ask for
// memory.
class AllowInRecording {
 public:
  AllowInRecording() noexcept;
  ~AllowInRecording();
  AllowInRecording(const AllowInRecording&) = delete;
  AllowInRecording& operator=(const AllowInRecording&) = delete;

 private:
  cudaStreamCaptureMode previous_;
};

class CudaRecorder final : public StreamRecorder {
 public:
  explicit CudaRecorder(int device_index) : device_index_(device_index) {}
  void begin(Stream stream) override;
  std::shared_ptr<ExecutableGraph> end(Stream stream) override;
  void abandon(Stream stream) noexcept override;

 private:
  int device_index_;
};

}  // namespace heddle::cuda
