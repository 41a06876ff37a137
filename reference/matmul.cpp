#include "reference/reference.h"

namespace heddle::reference {

Array matmul(const Array& a, const Array& b, const MatmulParams& params) {
  const int rank = a.shape.rank();
  const std::int64_t batch = rank == 3 ? a.dim(0) : 1;
  const std::int64_t rows = a.dim(params.transpose_a ? -1 : -2), inner = a.dim(params.transpose_a ? -2 : -1);
  const std::int64_t columns = b.dim(params.transpose_b ? -2 : -1);
  Array y(rank == 3 ? Shape{batch, rows, columns} : Shape{rows, columns});
  for (std::int64_t n = 0; n < batch; ++n) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) {
          const double left = a[n * rows * inner + (params.transpose_a ? k * rows + i : i * inner + k)];
          const double right = b[n * inner * columns + (params.transpose_b ? j * inner + k : k * columns + j)];
          sum += left * right;
        }
        y[(n * rows + i) * columns + j] = sum;
      }
    }
  }
  return y;
}

Array linear_forward(const Array& x, const Array& w, const Array& bias, bool relu) {
  Array y = matmul(x, w, {.transpose_b = true});
  const std::int64_t out = w.dim(0);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    if (bias.defined()) y[i] += bias[i % out];
    if (relu && y[i] <= 0) y[i] = 0;
  }
  return y;
}

Array linear_backward_data(const Array& dy, const Array& w, const Array& relu_mask) {
  Array dx = matmul(dy, w, {});
  if (relu_mask.defined()) {
    for (std::int64_t i = 0; i < dx.numel(); ++i) {
      if (!(relu_mask[i] > 0)) dx[i] = 0;
    }
  }
  return dx;
}

Array linear_backward_weight(const Array& x, const Array& dy) { return matmul(dy, x, {.transpose_a = true}); }

Array bias_gradient(const Array& dy) {
  const std::int64_t out = dy.dim(-1);
  Array db({out});
  for (std::int64_t i = 0; i < dy.numel(); ++i) db[i % out] += dy[i];
  return db;
}

}  // namespace heddle::reference
