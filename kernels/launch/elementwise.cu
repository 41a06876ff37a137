#include "kernels/device/elementwise.cuh"

#include "kernels/launch/elementwise.h"
#include "kernels/launch/walk.h"

namespace heddle::cuda {

template <class T>
void fill(T* y, std::int64_t count, double value, cudaStream_t stream) {
  if (count == 0) return;
  const Walk way = walk(count, kPackSize<T>, y);
  launch("fill", fill_kernel<T>, way.shape, stream, {writes(y, count)}, y, count, way.packs, value);
}

template <class T>
void axpy(float alpha, const T* x, std::int64_t count, T* y, cudaStream_t stream) {
  if (count == 0) return;
  const Walk way = walk(count, kPackSize<T>, x, y);
  launch("axpy", axpy_kernel<T>, way.shape, stream, {reads(x, count), updates(y, count)}, alpha, x, count, way.packs,
         y);
}

template <class T>
void unary(UnaryFunction function, const T* x, std::int64_t count, double a, double b, T* y, cudaStream_t stream) {
  if (count == 0) return;
  const Walk way = walk(count, kPackSize<T>, x, y);
  launch("unary", unary_kernel<T>, way.shape, stream, {reads(x, count), writes(y, count)}, function, x, count,
         way.packs, a, b, y);
}

template <class From, class To>
void cast(const From* x, std::int64_t count, To* y, cudaStream_t stream) {
  if constexpr (std::is_same_v<From, To>) {
    unary(UnaryFunction::copy, x, count, 0, 0, y, stream);
  } else if (count != 0) {
    const Walk way = walk(count, kCastPack<From, To>, x, y);
    launch("cast", cast_kernel<From, To>, way.shape, stream, {reads(x, count), writes(y, count)}, x, count, way.packs,
           y);
  }
}

template <class T>
void unary_backward(UnaryFunction function, const T* saved, const T* dy, std::int64_t count, double a, double b, T* dx,
                    bool add, cudaStream_t stream) {
  if (count == 0) return;
  const Walk way = walk(count, kPackSize<T>, saved, dy, static_cast<const T*>(dx));
  launch("unary_backward", unary_backward_kernel<T>, way.shape, stream,
         {reads(saved, count), reads(dy, count), add ? updates(dx, count) : writes(dx, count)}, function, saved, dy,
         count, way.packs, static_cast<float>(a), static_cast<float>(b), dx, add);
}

#define HEDDLE_INSTANTIATE_CASTS(From)                                         \
  template void cast(const From*, std::int64_t, float*, cudaStream_t);         \
  template void cast(const From*, std::int64_t, __nv_bfloat16*, cudaStream_t); \
  template void cast(const From*, std::int64_t, std::int32_t*, cudaStream_t);  \
  template void cast(const From*, std::int64_t, std::int64_t*, cudaStream_t);  \
  template void cast(const From*, std::int64_t, std::uint8_t*, cudaStream_t)
#define HEDDLE_INSTANTIATE_ALL(T)                                                               \
  template void fill(T*, std::int64_t, double, cudaStream_t);                                   \
  template void unary(UnaryFunction, const T*, std::int64_t, double, double, T*, cudaStream_t); \
  HEDDLE_INSTANTIATE_CASTS(T)
#define HEDDLE_INSTANTIATE_FLOATS(T)                                   \
  template void axpy(float, const T*, std::int64_t, T*, cudaStream_t); \
  template void unary_backward(UnaryFunction, const T*, const T*, std::int64_t, double, double, T*, bool, cudaStream_t)

HEDDLE_INSTANTIATE_ALL(float);
HEDDLE_INSTANTIATE_ALL(__nv_bfloat16);
HEDDLE_INSTANTIATE_ALL(std::int32_t);
HEDDLE_INSTANTIATE_ALL(std::int64_t);
HEDDLE_INSTANTIATE_ALL(std::uint8_t);
HEDDLE_INSTANTIATE_FLOATS(float);
HEDDLE_INSTANTIATE_FLOATS(__nv_bfloat16);

}  // namespace heddle::cuda
