// Element-wise operations with broadcasting. Pointers are device memory. Nothing waits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "engine/core/shape.h"
#include "kernels/device/functions.cuh"

namespace heddle::cuda {

// y = f(a, b) for an arithmetic function; y has the broadcast shape of a and b and may be an operand of that shape.
// T: float, __nv_bfloat16; std::int32_t, std::int64_t, std::uint8_t except div and pow.
template <class T>
void binary(BinaryFunction function, const T* a, const Shape& a_shape, const T* b, const Shape& b_shape, T* y,
            const Shape& y_shape, cudaStream_t stream);

// y = 1 where the comparison holds, else 0. The same types.
template <class T>
void compare(BinaryFunction function, const T* a, const Shape& a_shape, const T* b, const Shape& b_shape,
             std::uint8_t* y, const Shape& y_shape, cudaStream_t stream);

// y = condition ? a : b. T: an unsigned type of 1, 2, 4 or 8 bytes. shapes: of condition, a and b.
template <class T>
void where(const std::uint8_t* condition, const T* a, const T* b, const std::array<const Shape*, 3>& shapes, T* y,
           const Shape& y_shape, cudaStream_t stream);

}  // namespace heddle::cuda
