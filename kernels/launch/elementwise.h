// Fill, cast and arithmetic on each element alone. Pointers are device memory of `count` elements. Nothing waits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/functions.cuh"

namespace heddle::cuda {

// y[i] = value, converted. T: float, __nv_bfloat16, std::int32_t, std::int64_t, std::uint8_t.
template <class T>
void fill(T* y, std::int64_t count, double value, cudaStream_t stream);

// y[i] = x[i], converted as Backend::cast says. Between any two of fill's types.
template <class From, class To>
void cast(const From* x, std::int64_t count, To* y, cudaStream_t stream);

// y[i] += alpha * x[i]. T: float, __nv_bfloat16.
template <class T>
void axpy(float alpha, const T* x, std::int64_t count, T* y, cudaStream_t stream);

// y[i] = f(x[i]); y may be x. a, b: the function's parameters. T as fill's; integers have copy, neg, abs, relu,
// add_scalar, mul_scalar and clamp.
template <class T>
void unary(UnaryFunction function, const T* x, std::int64_t count, double a, double b, T* y, cudaStream_t stream);

// dx[i] (=|+=) dy[i] * f'(.). saved: the result or the operand of f, whichever apply_unary_backward in
// device/unary.cuh wants; may be null for a function that wants neither. T: float, __nv_bfloat16.
template <class T>
void unary_backward(UnaryFunction function, const T* saved, const T* dy, std::int64_t count, double a, double b, T* dx,
                    bool add, cudaStream_t stream);

}  // namespace heddle::cuda
