#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/cuda_runtime.h"
#include "kernels/launch/check.h"

namespace heddle::cuda {

StagingBuffers::~StagingBuffers() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.copied != nullptr) {
      cudaEventSynchronize(buffer.copied);
      cudaEventDestroy(buffer.copied);
    }
    if (buffer.data != nullptr) cudaFreeHost(buffer.data);
  }
}

void StagingBuffers::prepare(Buffer& buffer, DeviceRuntime& runtime) {
  if (buffer.data == nullptr) HEDDLE_CUDA_CHECK(cudaHostAlloc(&buffer.data, kNbytes, cudaHostAllocDefault));
  if (buffer.copied == nullptr) {
    HEDDLE_CUDA_CHECK(cudaEventCreateWithFlags(&buffer.copied, cudaEventDisableTiming));
  } else if (const cudaError_t error = cudaEventQuery(buffer.copied); error == cudaErrorNotReady) {
    cudaGetLastError();
    wait_watched(runtime, buffer.copied);
    HEDDLE_CUDA_CHECK(cudaEventSynchronize(buffer.copied));
  } else {
    check(error, "cudaEventQuery");
  }
}

void StagingBuffers::copy(void* destination, const void* source, std::size_t nbytes, cudaStream_t stream,
                          DeviceRuntime& runtime) {
  const std::lock_guard lock(mutex_);
  for (std::size_t begin = 0; begin < nbytes; begin += kNbytes) {
    const std::size_t part = std::min(kNbytes, nbytes - begin);
    Buffer& buffer = buffers_[next_];
    next_ = (next_ + 1) % buffers_.size();
    prepare(buffer, runtime);
    std::memcpy(buffer.data, static_cast<const std::byte*>(source) + begin, part);
    HEDDLE_CUDA_CHECK(cudaMemcpyAsync(static_cast<std::byte*>(destination) + begin, buffer.data, part,
                                      cudaMemcpyHostToDevice, stream));
    HEDDLE_CUDA_CHECK(cudaEventRecord(buffer.copied, stream));
  }
}

}  // namespace heddle::cuda
