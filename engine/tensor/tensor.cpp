#include "engine/tensor/tensor.h"

#include <algorithm>

#include "engine/device/cuda_plugin.h"
#include "engine/device/device_runtime.h"

namespace heddle {
namespace {

// Calls fn with a pointer of the dtype's C++ type.
template <class Fn>
void visit_elements(DType dtype, void* data, Fn fn) {
  switch (dtype) {
    case DType::f32: return fn(static_cast<float*>(data));
    case DType::f64: return fn(static_cast<double*>(data));
    case DType::bf16: return fn(static_cast<bfloat16*>(data));
    case DType::i32: return fn(static_cast<std::int32_t*>(data));
    case DType::i64: return fn(static_cast<std::int64_t*>(data));
    case DType::u8: return fn(static_cast<std::uint8_t*>(data));
  }
}

// Integers have a range and no NaN; fractions are cut off. Bounds as powers of two, which a double holds exactly; a NaN
// fails all comparisons.
bool can_hold(DType dtype, double value) {
  switch (dtype) {
    case DType::i32: return value > -0x1p31 - 1 && value < 0x1p31;
    case DType::i64: return value >= -0x1p63 && value < 0x1p63;
    case DType::u8: return value > -1 && value < 256;
    default: return true;
  }
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor tensor;
  try {
    tensor.storage_ = Storage::allocate(checked_nbytes(shape, size_of(dtype)), device);
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(join_text("tensor ", shape, " ", dtype, ": ", e.what()), e.requested_nbytes());
  }
  tensor.version_ = std::make_shared<VersionCounter>();
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill_zero();
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  HEDDLE_CHECK(can_hold(dtype, value), "full: ", dtype, " ", shape, " cannot hold ", value);
  Tensor tensor = empty(shape, dtype, Device::cpu());
  visit_elements(dtype, tensor.mutable_raw_data(), [&]<class T>(T* data) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      std::fill_n(data, shape.numel(), bfloat16(static_cast<float>(value)));
    } else {
      std::fill_n(data, shape.numel(), static_cast<T>(value));
    }
  });
  return tensor.to(device);
}

Tensor Tensor::from_host(const void* values, std::size_t count, const Shape& shape, DType dtype, Device device) {
  HEDDLE_CHECK(static_cast<std::uint64_t>(shape.numel()) == count, "shape ", shape, " has ", shape.numel(),
               " elements, but ", count, " values were given");
  Tensor tensor = empty(shape, dtype, device);
  DeviceRuntime& runtime = runtime_for(device);
  const Stream stream = current_stream(device);
  runtime.copy_async(tensor.mutable_raw_data(), device, values, Device::cpu(), tensor.nbytes(), stream);
  // The caller may change the values as soon as this returns.
  if (!device.is_cpu() && is_page_locked(values)) runtime.synchronize(stream);
  return tensor;
}

Tensor Tensor::wrap(void* data, const Shape& shape, DType dtype, Device device) {
  return in_storage(Storage::wrap(data, checked_nbytes(shape, size_of(dtype)), device), shape, dtype);
}

Tensor Tensor::in_storage(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype) {
  HEDDLE_CHECK(reinterpret_cast<std::uintptr_t>(storage->data()) % size_of(dtype) == 0,
               "cannot wrap memory that is not aligned for ", dtype);
  HEDDLE_CHECK(checked_nbytes(shape, size_of(dtype)) <= storage->nbytes(), "a tensor ", shape, " ", dtype,
               " is larger than ", storage->nbytes(), " bytes of memory");
  Tensor tensor;
  tensor.storage_ = std::move(storage);
  tensor.version_ = std::make_shared<VersionCounter>();
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  return tensor;
}

Tensor Tensor::reshape(const Shape& shape) const {
  HEDDLE_CHECK(defined(), "reshape of an undefined tensor");
  HEDDLE_CHECK(shape.numel() == numel(), "reshape: ", shape_, " has ", numel(), " elements, ", shape, " has ",
               shape.numel());
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::reshape(std::initializer_list<std::int64_t> dims) const {
  std::vector<std::int64_t> resolved(dims);
  const auto unknown = std::find(resolved.begin(), resolved.end(), -1);
  if (unknown != resolved.end()) {
    HEDDLE_CHECK(std::find(unknown + 1, resolved.end(), -1) == resolved.end(), "reshape: two dimensions are -1; ",
                 shape_, " with ", numel(), " elements leaves one to find");
    *unknown = 1;
    const Shape known(resolved);
    HEDDLE_CHECK(known.numel() > 0 && numel() % known.numel() == 0, "reshape: ", shape_, " with ", numel(),
                 " elements cannot fill the -1 of ", known, " (-1 shown as 1)");
    *unknown = numel() / known.numel();
  }
  return reshape(Shape(resolved));
}

Tensor Tensor::narrow(std::int64_t begin, std::int64_t n) const {
  HEDDLE_CHECK(defined() && rank() > 0, "narrow needs a tensor with at least one dimension");
  HEDDLE_CHECK(begin >= 0 && n >= 0 && begin <= dim(0) && n <= dim(0) - begin, "narrow: rows [", begin, ", ", begin,
               "+", n, ") are out of range for shape ", shape_);
  std::vector<std::int64_t> dims(shape_.dims().begin(), shape_.dims().end());
  const std::int64_t row_numel = dims[0] == 0 ? 0 : numel() / dims[0];
  dims[0] = n;
  Tensor view = *this;
  view.shape_ = Shape(dims);
  view.offset_ += static_cast<std::size_t>(begin * row_numel) * size_of(dtype_);
  return view;
}

Tensor Tensor::slice_of_flat(std::int64_t begin, const Shape& shape) const {
  HEDDLE_CHECK(defined() && begin >= 0 && begin <= numel() && shape.numel() <= numel() - begin, "slice of ", shape,
               " at element ", begin, " is out of range for ", numel(), " elements");
  Tensor view = *this;
  view.shape_ = shape;
  view.offset_ += static_cast<std::size_t>(begin) * size_of(dtype_);
  view.version_ = std::make_shared<VersionCounter>(version_);
  return view;
}

Tensor Tensor::clone() const {
  HEDDLE_CHECK(defined(), "clone of an undefined tensor");
  Tensor copy = empty(shape_, dtype_, device());
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::to(Device device) const {
  HEDDLE_CHECK(defined(), "copy of an undefined tensor to ", device);
  if (device == this->device()) return *this;
  Tensor copy = empty(shape_, dtype_, device);
  copy.copy_from(*this);
  return copy;
}

void Tensor::copy_from(const Tensor& other) {
  HEDDLE_CHECK(defined() && other.defined() && shape_ == other.shape_ && dtype_ == other.dtype_, "copy of ",
               other.shape_, " ", other.dtype_, " into ", shape_, " ", dtype_);
  const Device working = device().is_cpu() ? other.device() : device();
  DeviceRuntime& runtime = runtime_for(working);
  const Stream stream = current_stream(working);
  if (!device().is_cpu() && !other.device().is_cpu() && device() != other.device()) {
    // The values are made on the other GPU's stream, maybe only now.
    runtime.wait(stream, runtime_for(other.device()).record(current_stream(other.device())));
  }
  runtime.copy_async(mutable_raw_data(), device(), other.raw_data(), other.device(), nbytes(), stream);
  if (device() != other.device()) runtime.synchronize(stream);
}

void Tensor::fill_zero() {
  HEDDLE_CHECK(defined(), "fill_zero of an undefined tensor");
  runtime_for(device()).fill_async(mutable_raw_data(), 0, nbytes(), current_stream(device()));
}

void Tensor::copy_to_host(void* destination) const {
  DeviceRuntime& runtime = runtime_for(device());
  const Stream stream = current_stream(device());
  runtime.copy_async(destination, Device::cpu(), raw_data(), device(), nbytes(), stream);
  runtime.synchronize(stream);
}

double Tensor::item() const {
  HEDDLE_CHECK(defined() && numel() == 1, "item() needs a tensor with one element, this one has shape ", shape_);
  Tensor host = to(Device::cpu());
  double value = 0;
  visit_elements(dtype_, const_cast<void*>(host.raw_data()), [&]<class T>(T* data) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      value = static_cast<double>(static_cast<float>(*data));
    } else {
      value = static_cast<double>(*data);
    }
  });
  return value;
}

void Tensor::check_access(DType wanted, bool host) const {
  HEDDLE_CHECK(defined(), "access to the data of an undefined tensor");
  HEDDLE_CHECK(dtype_ == wanted, "access as ", wanted, " to a tensor of ", dtype_, " with shape ", shape_);
  HEDDLE_CHECK(!host || device().is_cpu(), "host access to a tensor on ", device(), " with shape ", shape_,
               "; copy it with to(Device::cpu())");
}

}  // namespace heddle
