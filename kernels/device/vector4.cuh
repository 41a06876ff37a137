// Four neighbouring numbers of a tensor as floats: the unit in which kernels read and write memory. float moves as 128
// bits, bfloat16 as 64.
#pragma once

#include "types.cuh"

namespace heddle::cuda::device {

struct Four {
  float v[4];
};

// data must be aligned to four elements.
template <class T>
__device__ inline Four load_four(const T* data) {
  const Pack<T, 4> pack = load_pack<4>(data);
  return {{widen(pack.at[0]), widen(pack.at[1]), widen(pack.at[2]), widen(pack.at[3])}};
}
template <class T>
__device__ inline void store_four(T* data, const Four& four) {
  store_pack(data, Pack<T, 4>{{convert_to<T>(four.v[0]), convert_to<T>(four.v[1]), convert_to<T>(four.v[2]),
                               convert_to<T>(four.v[3])}});
}
// The first `count` (0 to 4) of four numbers, zero behind them. `wide`: all four may be moved at once.
template <class T>
__device__ inline Four load_up_to_four(const T* data, long long count, bool wide) {
  if (wide && count >= 4) return load_four(data);
  Four four = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < count) four.v[i] = widen(data[i]);
  }
  return four;
}
template <class T>
__device__ inline void store_up_to_four(T* data, const Four& four, long long count, bool wide) {
  if (wide && count >= 4) return store_four(data, four);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < count) data[i] = convert_to<T>(four.v[i]);
  }
}

}  // namespace heddle::cuda::device
