#include "kernels/device/fill.cuh"

#include "kernels/launch/kernels.h"
#include "kernels/launch/launch.h"

namespace heddle::cuda {

template <class T>
void fill(T* y, std::int64_t count, T value, cudaStream_t stream) {
  if (count == 0) return;
  launch("fill", fill_kernel<T>, cover(count, 256, 4), stream, {writes(y, count)}, y, count, value);
}

template void fill(float*, std::int64_t, float, cudaStream_t);
template void fill(__nv_bfloat16*, std::int64_t, __nv_bfloat16, cudaStream_t);
template void fill(int*, std::int64_t, int, cudaStream_t);
template void fill(std::int64_t*, std::int64_t, std::int64_t, cudaStream_t);
template void fill(unsigned char*, std::int64_t, unsigned char, cudaStream_t);

}  // namespace heddle::cuda
