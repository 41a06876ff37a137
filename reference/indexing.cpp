#include "reference/reference.h"

namespace heddle::reference {
namespace {

std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }

Shape with_dim(const Shape& shape, int dim, std::int64_t n) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[static_cast<std::size_t>(dim)] = n;
  return Shape(dims);
}

}  // namespace

Array permute(const Array& x, std::span<const int> perm) {
  std::vector<std::int64_t> dims;
  for (const int d : perm) dims.push_back(x.dim(d));
  Array y{Shape(dims)};
  const auto strides = x.shape.strides();
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    std::int64_t rest = i, from = 0;
    for (int d = y.shape.rank() - 1; d >= 0; --d) {
      from += rest % y.dim(d) * strides[static_cast<std::size_t>(perm[static_cast<std::size_t>(d)])];
      rest /= y.dim(d);
    }
    y[i] = x[from];
  }
  return y;
}

Array copy_range(const Array& x, std::int64_t x_begin, const Array& y, std::int64_t y_begin, int dim, std::int64_t n,
                 WriteMode mode) {
  Array result = y;
  const std::int64_t outer = x.shape.numel_between(0, dim), inner = x.shape.numel_between(dim + 1, x.shape.rank());
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t k = 0; k < inner; ++k) {
        const double value = x[(o * x.dim(dim) + x_begin + j) * inner + k];
        double& target = result[(o * y.dim(dim) + y_begin + j) * inner + k];
        target = mode == WriteMode::add ? target + value : value;
      }
    }
  }
  return result;
}

Array index_select(const Array& x, const Array& index) {
  Array y(with_dim(x.shape, 0, index.numel()));
  const std::int64_t row = x.shape.numel_between(1, x.shape.rank());
  for (std::int64_t i = 0; i < y.numel(); ++i) y[i] = x[whole(index[i / row]) * row + i % row];
  return y;
}

Array index_add(const Array& x, const Array& index, const Array& y) {
  Array result = y;
  const std::int64_t row = x.shape.numel_between(1, x.shape.rank());
  for (std::int64_t i = 0; i < x.numel(); ++i) result[whole(index[i / row]) * row + i % row] += x[i];
  return result;
}

Array gather(const Array& x, int dim, const Array& index) {
  Array y(index.shape);
  const std::int64_t inner = index.shape.numel_between(dim + 1, index.shape.rank());
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    y[i] = x[(i / inner / index.dim(dim) * x.dim(dim) + whole(index[i])) * inner + i % inner];
  }
  return y;
}

Array scatter_add(const Array& x, int dim, const Array& index, const Array& y) {
  Array result = y;
  const std::int64_t inner = index.shape.numel_between(dim + 1, index.shape.rank());
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    result[(i / inner / index.dim(dim) * y.dim(dim) + whole(index[i])) * inner + i % inner] += x[i];
  }
  return result;
}

}  // namespace heddle::reference
