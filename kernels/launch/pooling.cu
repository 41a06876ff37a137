#include "kernels/device/pooling.cuh"

#include "kernels/launch/pooling.h"
#include "kernels/launch/walk.h"

namespace heddle::cuda {
namespace {

PoolAxis axis_of(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                 bool adaptive) {
  const auto narrow = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  return {narrow(in), narrow(out), narrow(kernel), narrow(stride), narrow(padding), adaptive};
}

// For a kernel whose threads have n channels each of images of height x width.
PoolShape shape_of(const PoolGeometry& g, std::int64_t height, std::int64_t width, int n) {
  PoolShape shape;
  shape.rows = axis_of(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.padding_h, g.adaptive);
  shape.columns = axis_of(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.padding_w, g.adaptive);
  shape.channels = static_cast<std::int32_t>(g.channels);
  shape.pitch = static_cast<std::int32_t>(g.adaptive ? g.in_w : g.kernel_w);
  shape.count_include_pad = g.count_include_pad;
  shape.packs = Divider(g.channels / n);
  shape.width = Divider(width);
  shape.height = Divider(height);
  return shape;
}

// Whether pixels can be read in packs of n channels.
template <class... Ts>
bool fits_packs(const PoolGeometry& g, int n, const Ts*... pointers) {
  return g.channels % n == 0 && (is_aligned(pointers, 16) && ...);
}

std::size_t argmax_nbytes(const PoolGeometry& g, const PoolArgmax& argmax) {
  return static_cast<std::size_t>(g.out_numel()) * (argmax.type == ElementType::u8 ? 1 : 4);
}

// Calls fn with the pack size as a compile-time constant.
template <class T, class Fn>
void with_pack(bool packed, Fn&& fn) {
  if (packed) return fn(std::integral_constant<int, kPackSize<T>>{});
  fn(std::integral_constant<int, 1>{});
}

}  // namespace

template <class T>
void max_pool_forward(const T* x, const PoolGeometry& geometry, bool relu, T* y, const PoolArgmax& argmax,
                      cudaStream_t stream) {
  if (geometry.out_numel() == 0) return;
  const auto* const places = static_cast<const unsigned char*>(argmax.data);
  with_pack<T>(fits_packs(geometry, kPackSize<T>, x, static_cast<const T*>(y), places), [&](auto n) {
    const std::int64_t items = geometry.out_numel() / n;
    launch("max_pool_forward", max_pool_forward_kernel<T, n>, cover(items), stream,
           {reads(x, geometry.in_numel()), writes(y, geometry.out_numel()),
            writes_bytes(argmax.data, argmax_nbytes(geometry, argmax))},
           x, shape_of(geometry, geometry.out_h, geometry.out_w, n), items, relu, y, argmax.data, argmax.type);
  });
}

template <class T>
void max_pool_backward(const T* dy, const PoolArgmax& argmax, const PoolGeometry& geometry, T* dx, bool add,
                       cudaStream_t stream) {
  if (geometry.in_numel() == 0) return;
  const auto* const places = static_cast<const unsigned char*>(argmax.data);
  with_pack<T>(fits_packs(geometry, kPackSize<T>, dy, static_cast<const T*>(dx), places), [&](auto n) {
    const std::int64_t items = geometry.in_numel() / n;
    launch("max_pool_backward", max_pool_backward_kernel<T, n>, cover(items), stream,
           {reads(dy, geometry.out_numel()), reads_bytes(argmax.data, argmax_nbytes(geometry, argmax)),
            add ? updates(dx, geometry.in_numel()) : writes(dx, geometry.in_numel())},
           dy, argmax.data, argmax.type, shape_of(geometry, geometry.in_h, geometry.in_w, n), items, dx, add);
  });
}

template <class T>
void avg_pool_forward(const T* x, const PoolGeometry& geometry, T* y, cudaStream_t stream) {
  if (geometry.out_numel() == 0) return;
  with_pack<T>(fits_packs(geometry, kPackSize<T>, x, static_cast<const T*>(y)), [&](auto n) {
    const std::int64_t items = geometry.out_numel() / n;
    launch("avg_pool_forward", avg_pool_forward_kernel<T, n>, cover(items), stream,
           {reads(x, geometry.in_numel()), writes(y, geometry.out_numel())}, x,
           shape_of(geometry, geometry.out_h, geometry.out_w, n), items, y);
  });
}

template <class T>
void avg_pool_backward(const T* dy, const T* relu_mask, const PoolGeometry& geometry, T* dx, bool add,
                       cudaStream_t stream) {
  if (geometry.in_numel() == 0) return;
  with_pack<T>(fits_packs(geometry, kPackSize<T>, dy, relu_mask, static_cast<const T*>(dx)), [&](auto n) {
    const std::int64_t items = geometry.in_numel() / n;
    launch("avg_pool_backward", avg_pool_backward_kernel<T, n>, cover(items), stream,
           {reads(dy, geometry.out_numel()), reads(relu_mask, geometry.in_numel()),
            add ? updates(dx, geometry.in_numel()) : writes(dx, geometry.in_numel())},
           dy, relu_mask, shape_of(geometry, geometry.in_h, geometry.in_w, n), items, dx, add);
  });
}

#define HEDDLE_INSTANTIATE(T)                                                                                \
  template void max_pool_forward(const T*, const PoolGeometry&, bool, T*, const PoolArgmax&, cudaStream_t);  \
  template void max_pool_backward(const T*, const PoolArgmax&, const PoolGeometry&, T*, bool, cudaStream_t); \
  template void avg_pool_forward(const T*, const PoolGeometry&, T*, cudaStream_t);                           \
  template void avg_pool_backward(const T*, const T*, const PoolGeometry&, T*, bool, cudaStream_t)

HEDDLE_INSTANTIATE(float);
HEDDLE_INSTANTIATE(__nv_bfloat16);

}  // namespace heddle::cuda
