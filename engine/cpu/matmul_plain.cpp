// Matrix products as plain loops: for f64 (gradient checks) and for empty ones. Sums are in double.
#include <algorithm>
#include <vector>

#include "engine/core/parallel.h"
#include "engine/cpu/matmul_list.h"

namespace heddle::cpu {
namespace {

// Multiply-adds that are worth a thread.
constexpr std::int64_t kGrain = 1 << 15;

template <class T>
void gemm(const GemmCall& call) {
  const auto& [batch, m, n, k, transpose_a, transpose_b] = call.sizes;
  const T* const a = call.a.host_data<T>();
  const T* const b = call.b.host_data<T>();
  const T* const bias = call.bias.defined() ? call.bias.host_data<T>() : nullptr;
  T* const y = call.y.mutable_host_data<T>();
  const bool add = call.mode == WriteMode::add;
  // Copies, since structured bindings cannot be captured portably.
  const std::int64_t rows = m, columns = n, depth = k;
  const std::int64_t a_row = transpose_a != 0 ? 1 : k, a_depth = transpose_a != 0 ? m : 1;
  const std::int64_t b_depth = transpose_b != 0 ? 1 : n, b_column = transpose_b != 0 ? k : 1;
  const std::int64_t row_work = std::max<std::int64_t>(1, columns * depth);
  parallel_for(batch * rows, (kGrain + row_work - 1) / row_work, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(columns));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t matrix = row / rows;
      const T* const a_begin = a + matrix * rows * depth + row % rows * a_row;
      const T* const b_begin = b + matrix * depth * columns;
      for (std::int64_t j = 0; j < columns; ++j) {
        sums[static_cast<std::size_t>(j)] = bias == nullptr ? 0.0 : static_cast<double>(bias[j]);
      }
      for (std::int64_t d = 0; d < depth; ++d) {
        const auto value = static_cast<double>(a_begin[d * a_depth]);
        const T* const b_row = b_begin + d * b_depth;
        for (std::int64_t j = 0; j < columns; ++j) {
          sums[static_cast<std::size_t>(j)] += value * static_cast<double>(b_row[j * b_column]);
        }
      }
      T* const out = y + row * columns;
      for (std::int64_t j = 0; j < columns; ++j) {
        out[j] = static_cast<T>(sums[static_cast<std::size_t>(j)] + (add ? static_cast<double>(out[j]) : 0.0));
      }
    }
  });
}

template <class T, class Sum>
void column_sums(const Tensor& dy, Tensor& db, WriteMode mode) {
  const std::int64_t columns = db.numel(), rows = columns == 0 ? 0 : dy.numel() / columns;
  const T* const in = dy.host_data<T>();
  T* const out = db.mutable_host_data<T>();
  parallel_for(columns, std::max<std::int64_t>(16, kGrain / std::max<std::int64_t>(1, rows)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<Sum> sums(static_cast<std::size_t>(end - begin));
                 for (std::int64_t r = 0; r < rows; ++r) {
                   const T* const row = in + r * columns;
                   for (std::int64_t j = begin; j < end; ++j) {
                     sums[static_cast<std::size_t>(j - begin)] += static_cast<Sum>(row[j]);
                   }
                 }
                 for (std::int64_t j = begin; j < end; ++j) {
                   const Sum old = mode == WriteMode::add ? static_cast<Sum>(out[j]) : Sum{0};
                   out[j] = static_cast<T>(sums[static_cast<std::size_t>(j - begin)] + old);
                 }
               });
}

}  // namespace

void gemm_plain(const GemmCall& call) {
  if (call.a.dtype() == DType::f32) {
    gemm<float>(call);
  } else {
    gemm<double>(call);
  }
}

void column_sums(const Tensor& dy, Tensor& db, WriteMode mode) {
  switch (dy.dtype()) {
    case DType::f32: return column_sums<float, float>(dy, db, mode);
    case DType::f64: return column_sums<double, double>(dy, db, mode);
    case DType::bf16: return column_sums<bfloat16, float>(dy, db, mode);
    default: throw NotSupported(join_text("bias gradient: no ", dy.dtype(), " on the CPU"));
  }
}

}  // namespace heddle::cpu
