// The one matrix product behind the simulated libraries' matrix products and convolutions, in double. Used by the
// doubles of cuBLAS and cuDNN; knows none of them.
#pragma once

#include <cstdint>

namespace cudasim {

// c += a * b. a is (m,k) with any strides, so it may be a transposed view; b is (k,n) and c is (m,n), both with
// neighbouring elements in a row. Element (i,j) is summed over k in order, whatever the sizes.
struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t a_row_stride = 0;
  std::int64_t a_column_stride = 1;
  std::int64_t b_row_stride = 0;
  std::int64_t c_row_stride = 0;
};
void add_product(const ProductShape& shape, const double* a, const double* b, double* c);

}  // namespace cudasim
