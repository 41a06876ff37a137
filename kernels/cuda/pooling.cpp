// Max, average and adaptive pooling. Used through CudaBackend.
#include "kernels/launch/pooling.h"

#include <limits>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {
namespace {

PoolGeometry images_of(const Shape& x, const Shape& y) {
  PoolGeometry geometry{.batch = x[0], .in_h = x[1], .in_w = x[2], .out_h = y[1], .out_w = y[2], .channels = x[3]};
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  HEDDLE_CHECK(x[1] * x[2] <= most && y[1] * y[2] <= most && x[3] <= most, "pooling: images of more than ", most,
               " pixels are not offered on a CUDA device; x ", x, ", y ", y);
  return geometry;
}
PoolGeometry sliding(const Shape& x, const Shape& y, const Pool2dParams& params) {
  PoolGeometry geometry = images_of(x, y);
  geometry.kernel_h = params.kernel_h;
  geometry.kernel_w = params.kernel_w;
  geometry.stride_h = params.stride_h;
  geometry.stride_w = params.stride_w;
  geometry.padding_h = params.padding_h;
  geometry.padding_w = params.padding_w;
  geometry.count_include_pad = params.count_include_pad;
  return geometry;
}
PoolGeometry adaptive(const Shape& x, const Shape& y) {
  PoolGeometry geometry = images_of(x, y);
  geometry.adaptive = true;
  return geometry;
}

PoolArgmax argmax_of(const Tensor& argmax) {
  return {.data = const_cast<void*>(argmax.raw_data()),
          .type = argmax.defined() && argmax.dtype() == DType::i32 ? ElementType::i32 : ElementType::u8};
}
PoolArgmax argmax_to_write(Tensor& argmax) {
  argmax.mutable_raw_data();
  return argmax_of(argmax);
}

}  // namespace

void CudaBackend::max_pool2d_forward(const Tensor& x, const Pool2dParams& params, bool relu, Tensor& y,
                                     Tensor& argmax) {
  visit_floats("max_pool2d_forward", x.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::max_pool_forward(data_of<T>(x), sliding(x.shape(), y.shape(), params), relu, data_of<T>(y),
                           argmax_to_write(argmax), stream());
  });
}

// The forward pass leaves no winner where ReLU cuts, so y is not needed.
void CudaBackend::max_pool2d_backward(const Tensor& dy, const Tensor&, const Tensor& argmax, const Pool2dParams& params,
                                      Tensor& dx, WriteMode mode) {
  visit_floats("max_pool2d_backward", dy.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::max_pool_backward(data_of<T>(dy), argmax_of(argmax), sliding(dx.shape(), dy.shape(), params), data_of<T>(dx),
                            mode == WriteMode::add, stream());
  });
}

void CudaBackend::avg_pool2d_forward(const Tensor& x, const Pool2dParams& params, Tensor& y) {
  visit_floats("avg_pool2d_forward", x.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::avg_pool_forward(data_of<T>(x), sliding(x.shape(), y.shape(), params), data_of<T>(y), stream());
  });
}

void CudaBackend::avg_pool2d_backward(const Tensor& dy, const Pool2dParams& params, const Tensor& relu_mask, Tensor& dx,
                                      WriteMode mode) {
  visit_floats("avg_pool2d_backward", dy.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::avg_pool_backward(data_of<T>(dy), data_of<T>(relu_mask), sliding(dx.shape(), dy.shape(), params),
                            data_of<T>(dx), mode == WriteMode::add, stream());
  });
}

void CudaBackend::adaptive_pool2d_forward(PoolKind kind, const Tensor& x, Tensor& y, Tensor& argmax) {
  const PoolGeometry geometry = adaptive(x.shape(), y.shape());
  visit_floats("adaptive_pool2d_forward", x.dtype(), [&]<class T>(TypeTag<T>) {
    if (kind == PoolKind::avg) return cuda::avg_pool_forward(data_of<T>(x), geometry, data_of<T>(y), stream());
    cuda::max_pool_forward(data_of<T>(x), geometry, false, data_of<T>(y), argmax_to_write(argmax), stream());
  });
}

void CudaBackend::adaptive_pool2d_backward(PoolKind kind, const Tensor& dy, const Tensor& argmax, Tensor& dx,
                                           WriteMode mode) {
  const PoolGeometry geometry = adaptive(dx.shape(), dy.shape());
  const bool add = mode == WriteMode::add;
  visit_floats("adaptive_pool2d_backward", dy.dtype(), [&]<class T>(TypeTag<T>) {
    if (kind == PoolKind::avg) {
      return cuda::avg_pool_backward<T>(data_of<T>(dy), nullptr, geometry, data_of<T>(dx), add, stream());
    }
    cuda::max_pool_backward(data_of<T>(dy), argmax_of(argmax), geometry, data_of<T>(dx), add, stream());
  });
}

}  // namespace heddle::cuda
