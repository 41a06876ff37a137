#include "engine/ops/shape_rules.h"

#include <algorithm>
#include <limits>

namespace heddle::ops {
namespace {

std::vector<std::int64_t> dims_of(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

}  // namespace

void check_defined(const char* op, const char* name, const Tensor& x) {
  HEDDLE_CHECK(x.defined(), op, ": ", name, " is undefined, a tensor is needed");
}

void check_float(const char* op, const char* name, const Tensor& x) {
  check_defined(op, name, x);
  HEDDLE_CHECK(is_floating(x.dtype()), op, ": ", name, " is ", x.dtype(), ", f32, f64 or bf16 is needed; ", name, " ",
               x.shape());
}

void check_dtype(const char* op, const char* name, const Tensor& x, DType wanted) {
  check_defined(op, name, x);
  HEDDLE_CHECK(x.dtype() == wanted, op, ": ", name, " is ", x.dtype(), ", ", wanted, " is needed; ", name, " ",
               x.shape());
}

void check_same_device(const char* op, const char* a_name, const Tensor& a, const char* b_name, const Tensor& b) {
  HEDDLE_CHECK(a.device() == b.device(), op, ": ", a_name, " ", a.shape(), " is on ", a.device(), ", ", b_name, " ",
               b.shape(), " is on ", b.device());
}

void check_same_dtype(const char* op, const char* a_name, const Tensor& a, const char* b_name, const Tensor& b) {
  check_defined(op, a_name, a);
  check_defined(op, b_name, b);
  HEDDLE_CHECK(a.dtype() == b.dtype(), op, ": ", a_name, " ", a.shape(), " is ", a.dtype(), ", ", b_name, " ",
               b.shape(), " is ", b.dtype());
  check_same_device(op, a_name, a, b_name, b);
}

void check_rank(const char* op, const char* name, const Tensor& x, int rank) {
  check_defined(op, name, x);
  HEDDLE_CHECK(x.rank() == rank, op, ": ", name, " has ", x.rank(), " dimensions, needs ", rank, "; ", name, " ",
               x.shape());
}

int check_dim(const char* op, const Tensor& x, int dim) {
  check_defined(op, "x", x);
  HEDDLE_CHECK(dim >= -x.rank() && dim < x.rank(), op, ": dimension ", dim, " of x ", x.shape(), ", which has ",
               x.rank(), " dimensions");
  return dim < 0 ? dim + x.rank() : dim;
}

void check_index_values(const char* op, const char* name, const Tensor& index, std::int64_t limit,
                        const std::int64_t* ignored) {
  check_dtype(op, name, index, DType::i64);
  if (!index.device().is_cpu()) return;
  const std::int64_t* values = index.host_data<std::int64_t>();
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    const bool fits = (values[i] >= 0 && values[i] < limit) || (ignored != nullptr && values[i] == *ignored);
    HEDDLE_CHECK(fits, op, ": ", name, " holds ", values[i], " at position ", i, ", allowed is 0 to ", limit - 1,
                 ignored != nullptr ? join_text(" or ignore_index ", *ignored) : std::string(), "; ", name, " ",
                 index.shape());
  }
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> dims(static_cast<std::size_t>(rank));
  for (int i = 1; i <= rank; ++i) {
    const std::int64_t from_a = i <= a.rank() ? a[-i] : 1;
    const std::int64_t from_b = i <= b.rank() ? b[-i] : 1;
    HEDDLE_CHECK(from_a == from_b || from_a == 1 || from_b == 1, op, ": shapes ", a, " and ", b,
                 " do not broadcast: ", from_a, " against ", from_b, " in dimension ", -i);
    dims[static_cast<std::size_t>(rank - i)] = from_a == 1 ? from_b : from_a;
  }
  return Shape(dims);
}

std::uint32_t broadcast_mask(const Shape& own, const Shape& wide) {
  std::uint32_t mask = 0;
  const int missing = wide.rank() - own.rank();
  for (int i = 0; i < wide.rank(); ++i) {
    const std::int64_t size = i < missing ? 1 : own[i - missing];
    if (size == 1 && wide[i] != 1) mask |= 1u << i;
  }
  return mask;
}

std::uint32_t dims_mask(const char* op, const Tensor& x, const std::vector<int>& dims) {
  std::uint32_t mask = 0;
  for (const int dim : dims) {
    const std::uint32_t bit = 1u << check_dim(op, x, dim);
    HEDDLE_CHECK((mask & bit) == 0, op, ": dimension ", dim, " of x ", x.shape(), " is named twice");
    mask |= bit;
  }
  return mask;
}

Shape reduced_shape(const Shape& shape, std::uint32_t mask, bool keepdim) {
  std::vector<std::int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if ((mask >> i & 1u) == 0) {
      dims.push_back(shape[i]);
    } else if (keepdim) {
      dims.push_back(1);
    }
  }
  return Shape(dims);
}

Shape matmul_shape(const Tensor& a, const Tensor& b, const MatmulParams& params) {
  check_float("matmul", "a", a);
  check_same_dtype("matmul", "a", a, "b", b);
  HEDDLE_CHECK(a.rank() >= 2 && b.rank() >= 2, "matmul: operands need at least 2 dimensions, a is ", a.shape(),
               ", b is ", b.shape());
  const std::int64_t rows = a.dim(params.transpose_a ? -1 : -2), a_inner = a.dim(params.transpose_a ? -2 : -1);
  const std::int64_t b_inner = b.dim(params.transpose_b ? -1 : -2), columns = b.dim(params.transpose_b ? -2 : -1);
  HEDDLE_CHECK(a_inner == b_inner, "matmul: a ", a.shape(), params.transpose_a ? " (transposed)" : "", " has ", a_inner,
               " columns, b ", b.shape(), params.transpose_b ? " (transposed)" : "", " has ", b_inner, " rows");
  const bool shared_b = b.rank() == 2 && !params.transpose_a;
  const bool same_batch = a.rank() == b.rank() &&
                          std::equal(a.shape().dims().begin(), a.shape().dims().end() - 2, b.shape().dims().begin());
  HEDDLE_CHECK(shared_b || same_batch, "matmul: leading dimensions differ: a ", a.shape(), ", b ", b.shape());
  std::vector<std::int64_t> dims = dims_of(a.shape());
  dims[dims.size() - 2] = rows;
  dims[dims.size() - 1] = columns;
  return Shape(dims);
}

Shape concat_shape(const std::vector<Tensor>& inputs, int dim) {
  HEDDLE_CHECK(!inputs.empty(), "concat: at least one tensor is needed, 0 were given");
  const int along = check_dim("concat", inputs.front(), dim);
  std::vector<std::int64_t> dims = dims_of(inputs.front().shape());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& first = inputs.front();
    const Shape& shape = inputs[i].shape();
    HEDDLE_CHECK(inputs[i].defined(), "concat: input ", i, " is undefined; input 0 is ", first.shape());
    HEDDLE_CHECK(inputs[i].dtype() == first.dtype() && inputs[i].device() == first.device(), "concat: input 0 ",
                 first.shape(), " is ", first.dtype(), " on ", first.device(), ", input ", i, " ", shape, " is ",
                 inputs[i].dtype(), " on ", inputs[i].device());
    bool fits = shape.rank() == first.rank();
    for (int d = 0; fits && d < shape.rank(); ++d) fits = d == along || shape[d] == first.dim(d);
    HEDDLE_CHECK(fits, "concat along dimension ", along, ": input 0 is ", first.shape(), ", input ", i, " is ", shape,
                 "; they may differ in that dimension only");
    HEDDLE_CHECK(shape[along] <= std::numeric_limits<std::int64_t>::max() - total, "concat along dimension ", along,
                 ": input ", i, " is ", shape, ", those before have ", total, ": more than 64 bits can count");
    total += shape[along];
  }
  dims[static_cast<std::size_t>(along)] = total;
  return Shape(dims);
}

}  // namespace heddle::ops
