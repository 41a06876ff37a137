// Small helpers for tests of the simulated CUDA: device memory that frees itself, and a launch with typed arguments.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace cudasim::test {

// Throws unless the call succeeded.
inline void require_ok(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("a CUDA call failed: ") + cudaGetErrorName(error));
}

template <class... Parameters, class... Arguments>
cudaError_t start(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream, Arguments... arguments) {
  std::tuple<Parameters...> values(arguments...);
  return std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        return cudaLaunchKernel(kernel, grid, block, pointers, 0, stream);
      },
      values);
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    void* data = nullptr;
    require_ok(cudaMalloc(&data, count * sizeof(T)));
    data_ = static_cast<T*>(data);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    require_ok(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::size_t nbytes() const { return count_ * sizeof(T); }
  // Waits for the legacy stream alone.
  std::vector<T> values() const {
    std::vector<T> result(count_);
    require_ok(cudaMemcpy(result.data(), data_, nbytes(), cudaMemcpyDeviceToHost));
    return result;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

class NonBlockingStream {
 public:
  NonBlockingStream() { require_ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~NonBlockingStream() { cudaStreamDestroy(stream_); }
  NonBlockingStream(const NonBlockingStream&) = delete;
  NonBlockingStream& operator=(const NonBlockingStream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: stands in for the handle
 private:
  cudaStream_t stream_ = nullptr;
};

class EventHandle {
 public:
  explicit EventHandle(unsigned flags = cudaEventDisableTiming) {
    require_ok(cudaEventCreateWithFlags(&event_, flags));
  }
  ~EventHandle() { cudaEventDestroy(event_); }
  EventHandle(const EventHandle&) = delete;
  EventHandle& operator=(const EventHandle&) = delete;
  operator cudaEvent_t() const { return event_; }  // NOLINT: stands in for the handle
 private:
  cudaEvent_t event_ = nullptr;
};

// A fresh machine for each test, lazy and forward whatever the environment says.
struct FreshMachine {
  FreshMachine();
  ~FreshMachine();
};

}  // namespace cudasim::test
