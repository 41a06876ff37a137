#include "kernels/device/random.cuh"

#include <cmath>

#include "kernels/launch/random.h"
#include "kernels/launch/walk.h"

namespace heddle::cuda {

template <class T>
void dropout(const T* x, std::int64_t count, double p, const PhiloxStream& stream, T* y, bool add, cudaStream_t queue) {
  if (count == 0) return;
  const Walk way = walk(count, kPackSize<T>, x, static_cast<const T*>(y));
  // A uniform number is (bits >> 8) / 2^24, so it is >= p exactly from this one on.
  const DropoutFunction<T> function{x, y, static_cast<float>(1 / (1 - p)),
                                    static_cast<std::uint32_t>(std::ceil(p * 0x1p24)), add};
  launch("dropout", dropout_kernel<T>, way.shape, queue,
         {reads(x, count), add ? updates(y, count) : writes(y, count), reads(stream.counter, 1)}, function, stream,
         count, way.packs);
}

template <class T>
void random_uniform(double low, double high, const PhiloxStream& stream, T* y, std::int64_t count, cudaStream_t queue) {
  if (count == 0) return;
  launch("random_uniform", random_kernel<T, UniformNumbers>, cover(count), queue,
         {writes(y, count), reads(stream.counter, 1)}, UniformNumbers{low, high}, stream, y, count);
}

template <class T>
void random_normal(double mean, double stddev, const PhiloxStream& stream, T* y, std::int64_t count,
                   cudaStream_t queue) {
  if (count == 0) return;
  launch("random_normal", random_kernel<T, NormalNumbers>, cover(count), queue,
         {writes(y, count), reads(stream.counter, 1)}, NormalNumbers{mean, stddev}, stream, y, count);
}

#define HEDDLE_INSTANTIATE_RANDOM(T)                                                                  \
  template void dropout(const T*, std::int64_t, double, const PhiloxStream&, T*, bool, cudaStream_t); \
  template void random_uniform(double, double, const PhiloxStream&, T*, std::int64_t, cudaStream_t);  \
  template void random_normal(double, double, const PhiloxStream&, T*, std::int64_t, cudaStream_t)

HEDDLE_INSTANTIATE_RANDOM(float);
HEDDLE_INSTANTIATE_RANDOM(__nv_bfloat16);

}  // namespace heddle::cuda
