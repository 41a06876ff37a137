// Primitives that move elements: permute, ranges, rows and elements by index. Pointers are device memory. Nothing
// waits. Copies take the size of an element; sums its type: float, __nv_bfloat16, std::int32_t, std::int64_t,
// std::uint8_t.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/core/merged_dims.h"

namespace heddle::cuda {

// y = x with dimension i of y being dimension perm[i] of x.
void permute(const void* x, const Shape& shape, std::span<const int> perm, std::size_t element_nbytes, void* y,
             cudaStream_t stream);

// Parts [x_begin, x_begin + n) of dimension n of x to those from y_begin on in y; outer and inner of both are equal.
struct RangeCopy {
  AroundDim x, y;
  std::int64_t x_begin, y_begin, n;
};
void copy_range(const void* x, const RangeCopy& range, std::size_t element_nbytes, void* y, cudaStream_t stream);
// y += x there.
template <class T>
void add_range(const T* x, const RangeCopy& range, T* y, cudaStream_t stream);

// y.row(j) = x.row(index[j]) for n rows of row_nbytes bytes; x has x_rows rows.
void index_select(const void* x, std::int64_t x_rows, const std::int64_t* index, std::int64_t n, std::size_t row_nbytes,
                  void* y, cudaStream_t stream);
// y.row(index[j]) += x.row(j), in the order of j. x (n, row), y (y_rows, row). The work grows with n times y's size.
template <class T>
void index_add(const T* x, const std::int64_t* index, std::int64_t n, std::int64_t row, T* y, std::int64_t y_rows,
               cudaStream_t stream);

// y[i][j] = x[i][index[i][j]] along n; index has y's shape.
void gather(const void* x, const AroundDim& x_dims, const std::int64_t* index, const AroundDim& y_dims,
            std::size_t element_nbytes, void* y, cudaStream_t stream);
// y[i][index[i][j]] += x[i][j] along n, in the order of j; index has x's shape. The work grows with n times y's size.
template <class T>
void scatter_add(const T* x, const AroundDim& x_dims, const std::int64_t* index, const AroundDim& y_dims, T* y,
                 cudaStream_t stream);

}  // namespace heddle::cuda
