// The dense row-major tensor. It has no operators: arithmetic is in ops/ (with autograd) and backend/ (primitives).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../core/dtype.h"
#include "../core/shape.h"
#include "../device/device.h"
#include "storage.h"

namespace heddle {

// A handle: copies share the memory. Always contiguous; views exist only by reshape and by narrow on the first
// dimension. A default-constructed tensor is undefined. Images are (N,H,W,C), convolution weights (O,KH,KW,I).
class Tensor {
 public:
  Tensor() = default;

  // Undefined contents. Throws: InvalidArgument or OutOfMemory naming the shape.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu());
  static Tensor empty_like(const Tensor& other) { return empty(other.shape(), other.dtype(), other.device()); }
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu());
  // Every element set to value, converted to dtype.
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = Device::cpu());
  // A copy of host values. Throws: InvalidArgument if values.size() is not the shape's numel.
  template <class T>
  static Tensor from_values(std::span<const T> values, const Shape& shape, Device device = Device::cpu()) {
    return from_host(values.data(), values.size(), shape, dtype_of_v<T>, device);
  }
  template <class T>
  static Tensor from_values(const std::vector<T>& values, const Shape& shape, Device device = Device::cpu()) {
    return from_values(std::span<const T>(values), shape, device);
  }
  // A view of memory that the caller owns, keeps alive and may change; data must be aligned for dtype.
  static Tensor wrap(void* data, const Shape& shape, DType dtype, Device device = Device::cpu());
  // The elements at the beginning of a storage, whatever is there. Throws: InvalidArgument if it is too small.
  static Tensor in_storage(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype);

  bool defined() const noexcept { return storage_ != nullptr; }
  const Shape& shape() const noexcept { return shape_; }
  std::int64_t dim(int i) const { return shape_[i]; }
  int rank() const noexcept { return shape_.rank(); }
  std::int64_t numel() const noexcept { return shape_.numel(); }
  std::size_t nbytes() const noexcept { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  DType dtype() const noexcept { return dtype_; }
  Device device() const noexcept { return storage_ == nullptr ? Device{} : storage_->device(); }
  const std::shared_ptr<Storage>& storage() const noexcept { return storage_; }
  std::size_t offset_nbytes() const noexcept { return offset_; }

  // Same elements, another shape; shares memory. One dimension may be -1. Throws: InvalidArgument if numel differs.
  Tensor reshape(const Shape& shape) const;
  Tensor reshape(std::initializer_list<std::int64_t> dims) const;
  // Rows [begin, begin + n) of the first dimension; shares memory. Throws: InvalidArgument if out of range.
  Tensor narrow(std::int64_t begin, std::int64_t n) const;
  // Elements [begin, begin + shape.numel()) of the flat data as a tensor with its own version counter, which also sees
  // changes of this tensor. For parameters inside a flat buffer. Throws: InvalidArgument if out of range.
  Tensor slice_of_flat(std::int64_t begin, const Shape& shape) const;

  // A copy in fresh memory of the same device.
  Tensor clone() const;
  // This tensor if it is on the device already, else a copy there. Blocks until the copy is done.
  Tensor to(Device device) const;
  // Copies the elements of other (same shape and dtype, any device) into this tensor.
  void copy_from(const Tensor& other);
  void fill_zero();

  // Elements in host memory. Throws: InvalidArgument unless the tensor is on the CPU and holds T.
  template <class T>
  const T* host_data() const {
    check_access(dtype_of_v<T>, true);
    return static_cast<const T*>(raw_data());
  }
  // The same for writing; counts as a change of the tensor (see version()). Ask anew for every change: writes through a
  // pointer from before a forward pass are not noticed by the backward pass.
  template <class T>
  T* mutable_host_data() {
    check_access(dtype_of_v<T>, true);
    return static_cast<T*>(mutable_raw_data());
  }
  // Elements on the tensor's device, for kernels. Throws: InvalidArgument if it does not hold T.
  template <class T>
  const T* device_data() const {
    check_access(dtype_of_v<T>, false);
    return static_cast<const T*>(raw_data());
  }
  template <class T>
  T* mutable_device_data() {
    check_access(dtype_of_v<T>, false);
    return static_cast<T*>(mutable_raw_data());
  }
  // Untyped access for primitives.
  const void* raw_data() const noexcept {
    return storage_ == nullptr ? nullptr : static_cast<const std::byte*>(storage_->data()) + offset_;
  }
  void* mutable_raw_data() noexcept {
    if (version_ != nullptr) version_->bump();
    return const_cast<void*>(raw_data());
  }

  // All elements copied to a host vector of the same element type. Blocks. Throws: InvalidArgument if T differs.
  template <class T>
  std::vector<T> to_vector() const {
    check_access(dtype_of_v<T>, false);
    std::vector<T> values(static_cast<std::size_t>(numel()));
    copy_to_host(values.data());
    return values;
  }
  // The only element as double, whatever the dtype. Blocks. Throws: InvalidArgument unless numel is 1.
  double item() const;

  // Grows with every change made through this tensor, its views and the buffer it is part of.
  std::uint64_t version() const noexcept { return version_ == nullptr ? 0 : version_->value(); }
  // True if both begin at the same address of the same memory.
  bool same_memory(const Tensor& other) const noexcept {
    return defined() && raw_data() == other.raw_data() && storage_ == other.storage_;
  }

 private:
  static Tensor from_host(const void* values, std::size_t count, const Shape& shape, DType dtype, Device device);
  void check_access(DType wanted, bool host) const;
  void copy_to_host(void* destination) const;

  std::shared_ptr<Storage> storage_;
  std::shared_ptr<VersionCounter> version_;
  Shape shape_;
  std::size_t offset_ = 0;
  DType dtype_ = DType::f32;
};

// Values for people: shape, dtype, device and the elements, long dimensions shortened. Blocks.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace heddle
