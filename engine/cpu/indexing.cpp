// Primitives that move elements: permute, ranges, rows and elements by index. Used through CpuBackend. Copies know only
// the size of an element; sums know its type and add in a fixed order.
#include <algorithm>
#include <array>
#include <cstring>

#include "engine/core/merged_dims.h"
#include "engine/core/parallel.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

// Calls fn with an unsigned type of the element's size.
template <class Fn>
void visit_size(DType dtype, Fn fn) {
  switch (size_of(dtype)) {
    case 1: return fn(TypeTag<std::uint8_t>{});
    case 2: return fn(TypeTag<std::uint16_t>{});
    case 4: return fn(TypeTag<std::uint32_t>{});
    default: return fn(TypeTag<std::uint64_t>{});
  }
}

// Items of `elements` elements that make a worthwhile part of a parallel loop.
std::int64_t grain_for(std::int64_t elements) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, elements));
}

// y += x for n elements.
template <class T>
void add_to(T* y, const T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_integral_v<T>) {
      y[i] = static_cast<T>(static_cast<std::uint64_t>(y[i]) + static_cast<std::uint64_t>(x[i]));
    } else {
      y[i] = convert_to<T>(load(y[i]) + load(x[i]));
    }
  }
}

// Rows of y: its innermost dimension. Whole rows are copied where x holds them in one piece; otherwise blocks of a
// few rows that are neighbours in x are written together, so that a cache line of x is used for all its elements.
template <class T>
void permute_elements(const T* x, T* y, const PermutedDims& plan) {
  const std::size_t last = plan.rank - 1;
  const std::int64_t n = plan.dims[last], step = plan.steps[last];
  const auto row_offset = [&](std::int64_t row) {
    std::int64_t offset = 0;
    for (std::size_t d = last; d-- > 0; row /= plan.dims[d]) offset += row % plan.dims[d] * plan.steps[d];
    return offset;
  };
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < last; ++d) rows *= plan.dims[d];
  if (step == 1) {
    parallel_for(rows, grain_for(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) std::copy_n(x + row_offset(r), n, y + r * n);
    });
    return;
  }
  // The dimension of y that is contiguous in x. It exists: something has step 1, unless x has a single element.
  std::size_t across = 0;
  while (plan.steps[across] != 1) ++across;
  std::int64_t across_rows = 1;  // rows of y between neighbours along `across`
  for (std::size_t d = across + 1; d < last; ++d) across_rows *= plan.dims[d];
  constexpr std::int64_t kBlock = 16;
  const std::int64_t size = plan.dims[across], blocks = (size + kBlock - 1) / kBlock;
  // One item: a block of rows along `across` with all other coordinates fixed.
  const std::int64_t items = rows / size * blocks;
  parallel_for(items, grain_for(n * std::min(size, kBlock)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t low = item % across_rows, block = item / across_rows % blocks;
      const std::int64_t high = item / across_rows / blocks;
      const std::int64_t row = (high * size + block * kBlock) * across_rows + low;
      const std::int64_t height = std::min(kBlock, size - block * kBlock);
      const T* const from = x + row_offset(row);
      T* const to = y + row * n;
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < height; ++j) to[j * across_rows * n + i] = from[i * step + j];
      }
    }
  });
}

}  // namespace

void CpuBackend::permute(const Tensor& x, std::span<const int> perm, Tensor& y) {
  if (y.numel() == 0) return;
  const PermutedDims plan(x.shape(), perm);
  visit_size(x.dtype(), [&]<class T>(TypeTag<T>) { permute_elements(data_of<T>(x), data_of<T>(y), plan); });
}

void CpuBackend::copy_range(const Tensor& x, std::int64_t x_begin, Tensor& y, std::int64_t y_begin, int dim,
                            std::int64_t n, WriteMode mode) {
  const AroundDim in(x.shape(), dim), out(y.shape(), dim);
  const std::int64_t piece = n * in.inner;
  if (piece == 0) return;
  const auto each_piece = [&](const auto* from, auto* to, auto&& move) {
    from += x_begin * in.inner;
    to += y_begin * in.inner;
    parallel_for(in.outer, grain_for(piece), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = begin; o < end; ++o) move(to + o * out.n * in.inner, from + o * in.n * in.inner);
    });
  };
  if (mode == WriteMode::store) {
    visit_size(x.dtype(), [&]<class T>(TypeTag<T>) {
      each_piece(data_of<T>(x), data_of<T>(y), [&](T* to, const T* from) { std::copy_n(from, piece, to); });
    });
  } else {
    visit_all("copy_range", x.dtype(), [&]<class T>(TypeTag<T>) {
      each_piece(data_of<T>(x), data_of<T>(y), [&](T* to, const T* from) { add_to(to, from, piece); });
    });
  }
}

void CpuBackend::index_select(const Tensor& x, const Tensor& index, Tensor& y) {
  const std::size_t row_nbytes = y.numel() == 0 ? 0 : y.nbytes() / static_cast<std::size_t>(index.numel());
  if (row_nbytes == 0) return;
  const auto* const rows = data_of<std::int64_t>(index);
  const auto* const from = data_of<std::byte>(x);
  auto* const to = data_of<std::byte>(y);
  parallel_for(index.numel(), grain_for(static_cast<std::int64_t>(row_nbytes / 4)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t j = begin; j < end; ++j) {
                   std::memcpy(to + static_cast<std::size_t>(j) * row_nbytes,
                               from + static_cast<std::size_t>(rows[j]) * row_nbytes, row_nbytes);
                 }
               });
}

void CpuBackend::index_add(const Tensor& x, const Tensor& index, Tensor& y) {
  const std::int64_t n = index.numel();
  if (x.numel() == 0) return;
  const std::int64_t row = x.numel() / n;
  const auto* const rows = data_of<std::int64_t>(index);
  visit_all("index_add", x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = data_of<T>(x);
    T* const to = data_of<T>(y);
    // Threads share columns, so that repeated rows add up in the order of the index.
    parallel_for(row, grain_for(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = 0; j < n; ++j) add_to(to + rows[j] * row + begin, from + j * row + begin, end - begin);
    });
  });
}

void CpuBackend::gather(const Tensor& x, int dim, const Tensor& index, Tensor& y) {
  if (y.numel() == 0) return;
  const AroundDim in(x.shape(), dim), out(y.shape(), dim);
  const auto* const at = data_of<std::int64_t>(index);
  visit_size(x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = data_of<T>(x);
    T* const to = data_of<T>(y);
    parallel_for(out.outer * out.n, grain_for(out.inner), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* const image = from + r / out.n * in.n * in.inner;
        for (std::int64_t k = 0; k < out.inner; ++k) {
          const std::int64_t i = r * out.inner + k;
          to[i] = image[at[i] * in.inner + k];
        }
      }
    });
  });
}

void CpuBackend::scatter_add(const Tensor& x, int dim, const Tensor& index, Tensor& y) {
  if (x.numel() == 0) return;
  const AroundDim in(x.shape(), dim), out(y.shape(), dim);
  const auto* const at = data_of<std::int64_t>(index);
  visit_all("scatter_add", x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = data_of<T>(x);
    T* const to = data_of<T>(y);
    // One item is a column (outer, inner) of the scattered dimension: its sums have one order.
    parallel_for(in.outer * in.inner, grain_for(in.n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t o = item / in.inner, k = item % in.inner;
        for (std::int64_t j = 0; j < in.n; ++j) {
          const std::int64_t i = (o * in.n + j) * in.inner + k;
          add_to(to + (o * out.n + at[i]) * in.inner + k, from + i, 1);
        }
      }
    });
  });
}

}  // namespace heddle::cpu
