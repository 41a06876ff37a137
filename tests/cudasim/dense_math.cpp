#include "tests/cudasim/dense_math.h"

namespace cudasim {
namespace {

// Two doubles that may lie at any double's address: the width that every x86-64 has, so that no flag is needed.
using Pair = double __attribute__((vector_size(16)));
using UnalignedPair = double __attribute__((vector_size(16), aligned(8), may_alias));

const UnalignedPair& pair_at(const double* p) { return *reinterpret_cast<const UnalignedPair*>(p); }
UnalignedPair& pair_at(double* p) { return *reinterpret_cast<UnalignedPair*>(p); }

// A block of kRows x (2 * kPairs) of c, held in registers over the whole of k.
template <int kRows, int kPairs>
void add_block(const ProductShape& shape, const double* a, const double* b, double* c) {
  Pair sums[kRows][kPairs];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kPairs; ++j) sums[i][j] = pair_at(c + i * shape.c_row_stride + 2 * j);
  }
  for (std::int64_t p = 0; p < shape.k; ++p) {
    for (int i = 0; i < kRows; ++i) {
      const double factor = a[i * shape.a_row_stride + p * shape.a_column_stride];
      const Pair factors = {factor, factor};
      for (int j = 0; j < kPairs; ++j) sums[i][j] += factors * pair_at(b + p * shape.b_row_stride + 2 * j);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kPairs; ++j) pair_at(c + i * shape.c_row_stride + 2 * j) = sums[i][j];
  }
}

template <int kRows>
void add_rows(const ProductShape& shape, const double* a, const double* b, double* c) {
  std::int64_t j = 0;
  for (; j + 6 <= shape.n; j += 6) add_block<kRows, 3>(shape, a, b + j, c + j);
  if (j + 4 <= shape.n) {
    add_block<kRows, 2>(shape, a, b + j, c + j);
    j += 4;
  } else if (j + 2 <= shape.n) {
    add_block<kRows, 1>(shape, a, b + j, c + j);
    j += 2;
  }
  for (; j < shape.n; ++j) {
    for (int i = 0; i < kRows; ++i) {
      double sum = c[i * shape.c_row_stride + j];
      for (std::int64_t p = 0; p < shape.k; ++p) {
        sum += a[i * shape.a_row_stride + p * shape.a_column_stride] * b[p * shape.b_row_stride + j];
      }
      c[i * shape.c_row_stride + j] = sum;
    }
  }
}

}  // namespace

void add_product(const ProductShape& shape, const double* a, const double* b, double* c) {
  std::int64_t i = 0;
  for (; i + 4 <= shape.m; i += 4) add_rows<4>(shape, a + i * shape.a_row_stride, b, c + i * shape.c_row_stride);
  for (; i < shape.m; ++i) add_rows<1>(shape, a + i * shape.a_row_stride, b, c + i * shape.c_row_stride);
}

}  // namespace cudasim
