// Descriptors of cuDNN's graph interface as objects. Only the cudnn_* files include this.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/launch/check.h"

namespace heddle::cuda {

// Statuses 3000 to 3999 say that there is no such graph, engine or plan, not that something went wrong.
constexpr bool is_not_supported(cudnnStatus_t status) noexcept { return status / 1000 == 3; }

// Throws: NotSupported for those statuses; DeviceError with the call, the status and cuDNN's own account of the last
// error for others.
void check_cudnn(cudnnStatus_t status, const char* call, CallPlace place = CallPlace::current());

// Owns one descriptor. The setters throw DeviceError.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) {
    check_cudnn(cudnnBackendCreateDescriptor(type, &handle_), "cudnnBackendCreateDescriptor");
  }
  ~CudnnDescriptor() {
    if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  cudnnBackendDescriptor_t get() const noexcept { return handle_; }

  void set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values) {
    check_cudnn(cudnnBackendSetAttribute(handle_, attribute, type, count, values), "cudnnBackendSetAttribute");
  }
  template <class T>
  void set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, const T& value) {
    set(attribute, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t attribute, std::int64_t value) { set(attribute, CUDNN_TYPE_INT64, value); }
  void set(cudnnBackendAttributeName_t attribute, std::span<const std::int64_t> values) {
    set(attribute, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t attribute, cudnnDataType_t type) { set(attribute, CUDNN_TYPE_DATA_TYPE, type); }
  void set(cudnnBackendAttributeName_t attribute, const CudnnDescriptor& other) {
    const cudnnBackendDescriptor_t handle = other.get();
    set(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, handle);
  }
  void finalize() { check_cudnn(try_finalize(), "cudnnBackendFinalize"); }
  // For what cuDNN may refuse: plans, engine configurations from a file.
  cudnnStatus_t try_finalize() noexcept { return cudnnBackendFinalize(handle_); }

  template <class T>
  T get(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type) const {
    T value{};
    std::int64_t count = 0;
    check_cudnn(cudnnBackendGetAttribute(handle_, attribute, type, 1, &count, &value), "cudnnBackendGetAttribute");
    return value;
  }
  // Values of an attribute that has any number of them.
  template <class T>
  std::vector<T> get_all(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type) const {
    std::int64_t count = 0;
    check_cudnn(cudnnBackendGetAttribute(handle_, attribute, type, 0, &count, nullptr), "cudnnBackendGetAttribute");
    std::vector<T> values(static_cast<std::size_t>(count));
    if (count > 0) {
      check_cudnn(cudnnBackendGetAttribute(handle_, attribute, type, count, &count, values.data()),
                  "cudnnBackendGetAttribute");
      values.resize(static_cast<std::size_t>(count));
    }
    return values;
  }
  // The descriptors that an attribute holds, as copies of the given type.
  std::vector<CudnnDescriptor> get_descriptors(cudnnBackendAttributeName_t attribute,
                                               cudnnBackendDescriptorType_t type) const;

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace heddle::cuda
