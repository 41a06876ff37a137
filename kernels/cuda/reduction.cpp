// Sums, means and extremes over any dimensions, and argmax. Used through CudaBackend.
#include <algorithm>

#include "engine/core/merged_dims.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/visit.h"
#include "kernels/launch/elementwise.h"
#include "kernels/launch/reduce.h"

namespace heddle::cuda {
namespace {

ElementType element_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ElementType::f32;
    case DType::f64: return ElementType::f64;
    case DType::bf16: return ElementType::bf16;
    case DType::i32: return ElementType::i32;
    case DType::i64: return ElementType::i64;
    case DType::u8: return ElementType::u8;
  }
  return ElementType::f32;
}

Joining joining_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::max: return Joining::max;
    case ReduceKind::min: return Joining::min;
    default: return Joining::sum;
  }
}

// Scratch of nbytes bytes, undefined for none.
Tensor scratch(std::size_t nbytes, Device device) {
  return nbytes == 0 ? Tensor() : Tensor::empty({static_cast<std::int64_t>(nbytes)}, DType::u8, device);
}

// What stays the same while one group of dimensions after the other is reduced.
struct Reduction {
  Joining joining;
  ReduceOutput output;
  Device device;
  cudaStream_t stream;
};

// Reduces one group after the other, the largest first; what is left between is kept in the accumulator's type.
template <class T>
void reduce_groups(const Reduction& call, const T* x, DimGroups groups) {
  const std::size_t at = groups.largest_reduced();
  const bool none = at == groups.count;
  const MiddleDim dim{.outer = groups.numel_between(0, at),
                      .n = none ? 1 : groups.items[at].size,
                      .inner = none ? 1 : groups.numel_between(at + 1, groups.count)};
  if (!none) groups.remove(at);
  Tensor partial = scratch(reduce_scratch_nbytes(dim), call.device);
  if (groups.largest_reduced() == groups.count) {
    return cuda::reduce(call.joining, x, dim, call.output, partial.mutable_raw_data(), call.stream);
  }
  const auto reduce_rest = [&]<class A>(TypeTag<A>, DType dtype) {
    Tensor between = Tensor::empty({dim.outer * dim.inner}, dtype, call.device);
    cuda::reduce(call.joining, x, dim, {.y = between.mutable_raw_data(), .type = element_type(dtype)},
                 partial.mutable_raw_data(), call.stream);
    reduce_groups(call, static_cast<const A*>(between.raw_data()), groups);
  };
  if constexpr (std::is_integral_v<T>) {
    reduce_rest(TypeTag<std::int64_t>{}, DType::i64);
  } else if (call.joining == Joining::sum) {
    reduce_rest(TypeTag<double>{}, DType::f64);
  } else if constexpr (!std::is_same_v<T, double>) {
    reduce_rest(TypeTag<float>{}, DType::f32);
  }
}

}  // namespace

void CudaBackend::reduce(ReduceKind kind, const Tensor& x, std::uint32_t dim_mask, Tensor& y, WriteMode mode) {
  if (y.numel() == 0) return;
  const DimGroups groups(x.shape(), dim_mask);
  const double factor = kind == ReduceKind::mean ? 1 / static_cast<double>(groups.reduced_numel) : 1;
  const Reduction call{.joining = joining_of(kind),
                       .output = {.y = y.mutable_raw_data(),
                                  .type = element_type(y.dtype()),
                                  .add = mode == WriteMode::add,
                                  .factor = factor},
                       .device = device_,
                       .stream = stream()};
  visit_all("reduce", x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_integral_v<T> || std::is_same_v<T, std::int64_t>) {
      if (std::is_integral_v<T> && kind == ReduceKind::mean) throw_not_supported("mean", x.dtype());
      reduce_groups(call, data_of<T>(x), groups);
    } else {
      // Narrow integers are rare: they are widened first.
      if (kind == ReduceKind::mean) throw_not_supported("mean", x.dtype());
      Tensor wide = Tensor::empty(x.shape(), DType::i64, device_);
      cuda::cast(data_of<T>(x), x.numel(), data_of<std::int64_t>(wide), call.stream);
      reduce_groups(call, data_of<std::int64_t>(wide), groups);
    }
  });
}

void CudaBackend::argmax(const Tensor& x, int dim, Tensor& y) {
  const AroundDim around(x.shape(), x.shape().normalize_dim(dim));
  visit_all("argmax", x.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::argmax(data_of<T>(x), {around.outer, around.n, around.inner}, data_of<std::int64_t>(y), stream());
  });
}

}  // namespace heddle::cuda
