#include "tests/cudasim/cublas_gemm.h"

#include <cstring>
#include <utility>
#include <vector>

#include "tests/cudasim/dense_math.h"
#include "tests/cudasim/internal.h"

namespace cudasim {
namespace {

std::size_t nbytes_of(const StoredMatrix& matrix, std::int64_t batch_count) {
  const std::int64_t lines = matrix.row_major ? matrix.rows : matrix.columns;
  const std::int64_t length = matrix.row_major ? matrix.columns : matrix.rows;
  if (lines == 0 || length == 0) return 0;
  return bytes_of(matrix.type,
                  (batch_count - 1) * matrix.batch_stride + (lines - 1) * matrix.leading_dimension + length);
}

std::int64_t bias_numel(const GemmProblem& problem) {
  const bool of_columns = problem.epilogue.bias_gradient == GemmEpilogue::BiasGradient::of_b;
  return (problem.batch_count - 1) * problem.epilogue.bias_batch_stride +
         (of_columns ? problem.d.columns : problem.d.rows);
}

std::size_t mask_nbytes(const GemmProblem& problem) {
  const GemmEpilogue& epilogue = problem.epilogue;
  return bytes_of(ElementType::boolean, (problem.batch_count - 1) * epilogue.mask_batch_stride +
                                            problem.d.columns * epilogue.mask_leading_dimension);
}

bool uses_bias(const GemmEpilogue& epilogue) {
  return epilogue.add_bias || epilogue.bias_gradient != GemmEpilogue::BiasGradient::none;
}
bool uses_mask(const GemmEpilogue& epilogue) { return epilogue.write_mask || epilogue.apply_mask; }
bool reads_c(const GemmProblem& problem) { return problem.beta.device != nullptr || problem.beta.value != 0; }

std::vector<Access> accesses_of(const GemmProblem& problem) {
  const GemmEpilogue& epilogue = problem.epilogue;
  std::vector<Access> accesses = {{problem.a.data, nbytes_of(problem.a, problem.batch_count), false},
                                  {problem.b.data, nbytes_of(problem.b, problem.batch_count), false},
                                  {problem.d.data, nbytes_of(problem.d, problem.batch_count), true}};
  if (reads_c(problem)) accesses.push_back({problem.c.data, nbytes_of(problem.c, problem.batch_count), false});
  for (const Factor* factor : {&problem.alpha, &problem.beta}) {
    if (factor->device != nullptr) accesses.push_back({factor->device, sizeof(float), false});
  }
  if (uses_bias(epilogue)) {
    accesses.push_back({epilogue.bias, bytes_of(epilogue.bias_type, bias_numel(problem)), !epilogue.add_bias});
  }
  if (uses_mask(epilogue)) accesses.push_back({epilogue.mask, mask_nbytes(problem), epilogue.write_mask});
  if (problem.workspace_nbytes != 0) accesses.push_back({problem.workspace, problem.workspace_nbytes, true});
  return accesses;
}

const void* view_for_reading(const void* data, std::size_t nbytes) {
  return nbytes == 0 ? nullptr : host_view_bytes(data, nbytes, false);
}

void* view_for_writing(const void* data, std::size_t nbytes) {
  return nbytes == 0 ? nullptr : host_view_bytes(data, nbytes, true);
}

double value_of(const Factor& factor) {
  return factor.device == nullptr ? factor.value : static_cast<double>(*host_view(factor.device, sizeof(float), false));
}

// Where line i (a row if rows, else a column) of a matrix lies.
ElementRun line_of(const StoredMatrix& matrix, std::int64_t batch, bool rows, std::int64_t i) {
  const bool contiguous = rows == matrix.row_major;
  return {.type = matrix.type,
          .first = batch * matrix.batch_stride + i * (contiguous ? matrix.leading_dimension : 1),
          .stride = contiguous ? 1 : matrix.leading_dimension,
          .n = rows ? matrix.columns : matrix.rows};
}

// The matrix, transposed if asked, as dense rows.
std::vector<double> dense(const void* view, const StoredMatrix& matrix, std::int64_t batch, bool transpose) {
  const std::int64_t rows = transpose ? matrix.columns : matrix.rows;
  const std::int64_t columns = transpose ? matrix.rows : matrix.columns;
  std::vector<double> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    read_elements(view, line_of(matrix, batch, !transpose, i), values.data() + i * columns);
  }
  return values;
}

// The views of one running product.
struct Views {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  void* bias_gradient = nullptr;
  const void* mask_in = nullptr;
  void* mask_out = nullptr;
};

Views open(const GemmProblem& problem) {
  const GemmEpilogue& epilogue = problem.epilogue;
  Views views{.a = view_for_reading(problem.a.data, nbytes_of(problem.a, problem.batch_count)),
              .b = view_for_reading(problem.b.data, nbytes_of(problem.b, problem.batch_count)),
              .d = view_for_writing(problem.d.data, nbytes_of(problem.d, problem.batch_count))};
  if (reads_c(problem)) views.c = view_for_reading(problem.c.data, nbytes_of(problem.c, problem.batch_count));
  const std::size_t bias_nbytes = bytes_of(epilogue.bias_type, bias_numel(problem));
  if (epilogue.add_bias) {
    views.bias = view_for_reading(epilogue.bias, bias_nbytes);
  } else if (uses_bias(epilogue)) {
    views.bias_gradient = view_for_writing(epilogue.bias, bias_nbytes);
  }
  if (epilogue.write_mask) views.mask_out = view_for_writing(epilogue.mask, mask_nbytes(problem));
  if (epilogue.apply_mask) views.mask_in = view_for_reading(epilogue.mask, mask_nbytes(problem));
  return views;
}

void write_bias_gradient(const GemmEpilogue& epilogue, std::int64_t batch, const std::vector<double>& sums,
                         void* view) {
  write_elements(view,
                 {.type = epilogue.bias_type,
                  .first = batch * epilogue.bias_batch_stride,
                  .n = static_cast<std::int64_t>(sums.size())},
                 sums.data());
}

// One matrix of the batch. `result` holds op(a) * op(b), (m,n) in dense rows.
void finish(const GemmProblem& problem, const Views& views, std::int64_t batch, std::vector<double>& result) {
  const GemmEpilogue& epilogue = problem.epilogue;
  const std::int64_t m = problem.d.rows, n = problem.d.columns;
  const double alpha = value_of(problem.alpha), beta = value_of(problem.beta);
  std::vector<double> addend;
  if (beta != 0) addend = dense(views.c, problem.c, batch, false);
  std::vector<double> bias(static_cast<std::size_t>(m));
  if (epilogue.add_bias) {
    read_elements(views.bias, {.type = epilogue.bias_type, .first = batch * epilogue.bias_batch_stride, .n = m},
                  bias.data());
  }
  std::vector<double> column_bits(static_cast<std::size_t>(m)), sums(static_cast<std::size_t>(m));
  for (std::int64_t j = 0; j < n; ++j) {
    const ElementRun bits{.type = ElementType::boolean,
                          .first = batch * epilogue.mask_batch_stride + j * epilogue.mask_leading_dimension,
                          .n = m};
    if (epilogue.apply_mask) read_elements(views.mask_in, bits, column_bits.data());
    for (std::int64_t i = 0; i < m; ++i) {
      double& value = result[static_cast<std::size_t>(i * n + j)];
      const auto row = static_cast<std::size_t>(i);
      value *= alpha;
      if (beta != 0) value += beta * addend[static_cast<std::size_t>(i * n + j)];
      value += bias[row];
      if (epilogue.apply_mask) {
        if (column_bits[row] == 0) value = 0;
      } else {
        column_bits[row] = value > 0;
      }
      // A NaN is not positive and passes.
      if (epilogue.relu && value < 0) value = 0;
      sums[row] += value;
    }
    if (epilogue.write_mask) write_elements(views.mask_out, bits, column_bits.data());
  }
  for (std::int64_t i = 0; i < m; ++i) {
    write_elements(views.d, line_of(problem.d, batch, true, i), result.data() + i * n);
  }
  if (epilogue.bias_gradient == GemmEpilogue::BiasGradient::of_d) {
    write_bias_gradient(epilogue, batch, sums, views.bias_gradient);
  }
}

void compute(const GemmProblem& problem) {
  if (problem.workspace_nbytes != 0) {
    std::memset(view_for_writing(problem.workspace, problem.workspace_nbytes), 0xff, problem.workspace_nbytes);
  }
  const Views views = open(problem);
  const std::int64_t m = problem.d.rows, n = problem.d.columns;
  const std::int64_t k = problem.transpose_a ? problem.a.rows : problem.a.columns;
  for (std::int64_t batch = 0; batch < problem.batch_count; ++batch) {
    std::vector<double> a = dense(views.a, problem.a, batch, problem.transpose_a);
    std::vector<double> b = dense(views.b, problem.b, batch, problem.transpose_b);
    if (problem.epilogue.bias_gradient == GemmEpilogue::BiasGradient::of_a) {
      std::vector<double> sums(static_cast<std::size_t>(m));
      for (std::int64_t i = 0; i < m * k; ++i) sums[static_cast<std::size_t>(i / k)] += a[static_cast<std::size_t>(i)];
      write_bias_gradient(problem.epilogue, batch, sums, views.bias_gradient);
    }
    if (problem.epilogue.bias_gradient == GemmEpilogue::BiasGradient::of_b) {
      std::vector<double> sums(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < k * n; ++i) sums[static_cast<std::size_t>(i % n)] += b[static_cast<std::size_t>(i)];
      write_bias_gradient(problem.epilogue, batch, sums, views.bias_gradient);
    }
    if (problem.tf32) {
      for (double& value : a) value = round_to_tf32(value);
      for (double& value : b) value = round_to_tf32(value);
    }
    std::vector<double> result(static_cast<std::size_t>(m * n));
    add_product({.m = m, .n = n, .k = k, .a_row_stride = k, .b_row_stride = n, .c_row_stride = n}, a.data(), b.data(),
                result.data());
    finish(problem, views, batch, result);
  }
}

}  // namespace

std::optional<ElementType> gemm_element_type(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F: return ElementType::float32;
    case CUDA_R_16BF: return ElementType::bfloat16;
    case CUDA_R_16F: return ElementType::float16;
    default: return std::nullopt;
  }
}

cudaError_t enqueue_gemm(cudaStream_t stream, const char* name, const GemmProblem& problem) {
  return enqueue(stream, name, OpKind::library_call, accesses_of(problem), [problem] { compute(problem); });
}

}  // namespace cudasim
