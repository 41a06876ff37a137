#include <cmath>

#include "reference/reference.h"

namespace heddle::reference {

Array reduce(ReduceKind kind, const Array& x, std::uint32_t dim_mask) {
  std::vector<std::int64_t> dims(x.shape.dims().begin(), x.shape.dims().end());
  double count = 1;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if ((dim_mask >> d & 1) == 0) continue;
    count *= static_cast<double>(dims[d]);
    dims[d] = 1;
  }
  Array y{Shape(dims)};
  std::vector<bool> seen(y.values.size());
  const auto strides = y.shape.strides();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    std::int64_t rest = i, to = 0;
    for (int d = x.shape.rank() - 1; d >= 0; --d) {
      if ((dim_mask >> d & 1) == 0) to += rest % x.dim(d) * strides[static_cast<std::size_t>(d)];
      rest /= x.dim(d);
    }
    const bool first = !seen[static_cast<std::size_t>(to)];
    seen[static_cast<std::size_t>(to)] = true;
    switch (kind) {
      case ReduceKind::sum: y[to] += x[i]; break;
      case ReduceKind::mean: y[to] += x[i] / count; break;
      case ReduceKind::max: y[to] = first || x[i] > y[to] || std::isnan(x[i]) ? x[i] : y[to]; break;
      case ReduceKind::min: y[to] = first || x[i] < y[to] || std::isnan(x[i]) ? x[i] : y[to]; break;
    }
  }
  return y;
}

Array argmax(const Array& x, int dim) {
  std::vector<std::int64_t> dims(x.shape.dims().begin(), x.shape.dims().end());
  dims[static_cast<std::size_t>(dim)] = 1;
  Array y{Shape(dims)};
  const std::int64_t inner = x.shape.numel_between(dim + 1, x.shape.rank()), n = x.dim(dim);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const auto element = [&](std::int64_t j) { return x[(i / inner * n + j) * inner + i % inner]; };
    std::int64_t best = 0;
    for (std::int64_t j = 1; j < n; ++j) {
      if (std::isnan(element(best))) break;
      if (element(j) > element(best) || std::isnan(element(j))) best = j;
    }
    y[i] = static_cast<double>(best);
  }
  return y;
}

}  // namespace heddle::reference
