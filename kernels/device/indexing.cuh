// Moves and adds elements by position. Copies know only units of 1 to 16 bytes: U is an unsigned type or uint4. One
// thread: one unit or element of the result. Grid: one thread each. Blocks of 256. Deterministic.
#pragma once

#include "kernels/device/divider.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// Pieces of `piece` units, x_step apart in x and y_step in y. Bytes a unit: one read, one written.
template <class U>
__global__ void copy_pieces_kernel(const U* x, std::int64_t x_step, Divider piece, std::int64_t count,
                                   std::int64_t y_step, U* y) {
  std::int64_t i = grid_thread();
  if (i >= count) return;
  const std::int64_t o = piece.split(i);
  y[o * y_step + i] = x[o * x_step + i];
}

// The same, added to y. Bytes an element: two read, one written.
template <class T>
__global__ void add_pieces_kernel(const T* x, std::int64_t x_step, Divider piece, std::int64_t count,
                                  std::int64_t y_step, T* y) {
  std::int64_t i = grid_thread();
  if (i >= count) return;
  const std::int64_t o = piece.split(i);
  T& to = y[o * y_step + i];
  to = convert_to<T>(add(widen(to), widen(x[o * x_step + i])));
}

// Row j of y is row index[j] of x; rows of `row` units. Bytes a unit: one read, one written, and the row's index.
template <class U>
__global__ void select_rows_kernel(const U* x, const std::int64_t* index, Divider row, std::int64_t count, U* y) {
  const std::int64_t i = grid_thread();
  if (i >= count) return;
  std::int64_t c = i;
  const std::int64_t j = row.split(c);
  y[i] = x[index[j] * row.value() + c];
}

// y (outer, ., inner) from x (outer, n, inner): element i of y has the coordinate index[i] along n. slice: elements of
// y in an outer index. Bytes an element: 8 and one read, one written.
template <class U>
__global__ void gather_kernel(const U* x, std::int64_t n, const std::int64_t* index, Divider slice, Divider inner,
                              std::int64_t count, U* y) {
  const std::int64_t i = grid_thread();
  if (i >= count) return;
  std::int64_t k = i;
  const std::int64_t o = slice.split(k);
  inner.split(k);
  y[i] = x[(o * n + index[i]) * inner.value() + k];
}

// Distances in an index of (outer, n, inner), whose dimensions may be repeated.
struct IndexSteps {
  std::int64_t outer, n, inner;
};

// y (outer, ., inner) += elements of x (outer, n, inner) at the coordinates that index gives them. A thread looks
// through all n coordinates of its column, so that its additions have the order of the index. slice: elements of y in
// an outer index. Bytes an element of y: n * 8 and its elements of x read; where there are some, y read and written.
template <class T>
__global__ void scatter_add_kernel(const T* x, std::int64_t n, const std::int64_t* index, IndexSteps steps,
                                   Divider slice, Divider inner, std::int64_t count, T* y) {
  const std::int64_t i = grid_thread();
  if (i >= count) return;
  std::int64_t k = i;
  const std::int64_t o = slice.split(k), wanted = inner.split(k);
  const std::int64_t* const own = index + o * steps.outer + k * steps.inner;
  const T* const from = x + o * n * inner.value() + k;
  bool found = false;
  Compute<T> total{};
  for (std::int64_t j = 0; j < n; ++j) {
    if (own[j * steps.n] != wanted) continue;
    if (!found) total = widen(y[i]);
    found = true;
    total = add(total, widen(from[j * inner.value()]));
  }
  if (found) y[i] = convert_to<T>(total);
}

}  // namespace heddle::cuda
