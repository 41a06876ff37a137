// Sums and extremes over a dimension. Pointers are device memory. Nothing waits; the caller brings the scratch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/functions.cuh"

namespace heddle::cuda {

// An array (outer, n, inner) that is reduced over n to (outer, inner).
struct MiddleDim {
  std::int64_t outer = 1, n = 1, inner = 1;
};

// Where the result goes: y[i] (=|+=) value * factor, converted to type. Sums of floats can be written as f32, bf16 and
// f64, extremes of floats as f32 and bf16, results of integers as i32, i64 and u8.
struct ReduceOutput {
  void* y = nullptr;
  ElementType type = ElementType::f32;
  bool add = false;
  double factor = 1;  // for sums of floats
};

// Bytes of scratch that reduce() wants for this shape; may be 0.
std::size_t reduce_scratch_nbytes(const MiddleDim& dim);

// One kernel, or two for a long n. Sums of floats accumulate in double, of integers in 64 bits. The extreme of nothing
// is the weakest value. x of T: float, __nv_bfloat16, std::int64_t, and for sums double. scratch: aligned to 16 bytes.
template <class T>
void reduce(Joining joining, const T* x, const MiddleDim& dim, const ReduceOutput& output, void* scratch,
            cudaStream_t stream);

// y (outer, inner): index along n of the first largest element of x; a NaN counts as largest. n >= 1. T: float,
// __nv_bfloat16, std::int32_t, std::int64_t, std::uint8_t.
template <class T>
void argmax(const T* x, const MiddleDim& dim, std::int64_t* y, cudaStream_t stream);

}  // namespace heddle::cuda
