// Shapes as kernels want to see them: neighbouring dimensions that behave alike merged into one. Used by the backends.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "engine/core/shape.h"

namespace heddle {

// A shape seen as (outer, n, inner) around one dimension.
struct AroundDim {
  std::int64_t outer, n, inner;
  AroundDim(const Shape& shape, int dim)
      : outer(shape.numel_between(0, dim)), n(shape[dim]), inner(shape.numel_between(dim + 1, shape.rank())) {}
};

// The output's dimensions with as many as possible merged, and the step of each of N operands along them (0 where it
// is repeated). Dimensions of size 1 are left out, so the innermost steps are 0 or 1.
template <int N>
struct BroadcastDims {
  int rank = 0;
  std::int64_t numel = 1;
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  std::array<std::array<std::int64_t, Shape::kMaxRank>, N> steps{};

  BroadcastDims(const Shape& y, const std::array<const Shape*, N>& operands) : numel(y.numel()) {
    std::array<std::int64_t, N> stride, step;
    stride.fill(1);
    // From the innermost dimension outwards; entry 0 is the innermost.
    for (int d = y.rank() - 1; d >= 0; --d) {
      const std::int64_t size = y.dims()[static_cast<std::size_t>(d)];
      for (int k = 0; k < N; ++k) {
        const Shape& shape = *operands[static_cast<std::size_t>(k)];
        const int own = d - (y.rank() - shape.rank());
        const std::int64_t own_size = own < 0 ? 1 : shape.dims()[static_cast<std::size_t>(own)];
        step[static_cast<std::size_t>(k)] = own_size == 1 ? 0 : stride[static_cast<std::size_t>(k)];
        stride[static_cast<std::size_t>(k)] *= own_size;
      }
      if (size == 1) continue;
      bool merge = rank > 0;
      for (std::size_t k = 0; k < N && merge; ++k) {
        const auto inner = static_cast<std::size_t>(rank - 1);
        merge = step[k] == steps[k][inner] * dims[inner];
      }
      if (merge) {
        dims[static_cast<std::size_t>(rank - 1)] *= size;
      } else {
        dims[static_cast<std::size_t>(rank)] = size;
        for (std::size_t k = 0; k < N; ++k) steps[k][static_cast<std::size_t>(rank)] = step[k];
        ++rank;
      }
    }
    if (rank == 0) {
      rank = 1;
      dims[0] = 1;
    }
  }
};

// Dimensions of y, outermost first, with the step in x along each; neighbours that are neighbours in x are merged.
struct PermutedDims {
  std::size_t rank = 0;
  std::array<std::int64_t, Shape::kMaxRank> dims{}, steps{};

  PermutedDims(const Shape& x, std::span<const int> perm) {
    const auto strides = x.strides();
    for (const int p : perm) {
      const std::int64_t size = x.dims()[static_cast<std::size_t>(p)], step = strides[static_cast<std::size_t>(p)];
      if (size == 1) continue;
      if (rank > 0 && steps[rank - 1] == step * size) {
        dims[rank - 1] *= size;
        steps[rank - 1] = step;
      } else {
        dims[rank] = size;
        steps[rank++] = step;
      }
    }
    if (rank == 0) {
      dims[0] = 1;
      steps[rank++] = 1;
    }
  }
};

// A run of neighbouring dimensions that are all reduced or all kept.
struct DimGroups {
  struct Group {
    std::int64_t size;
    bool reduced;
  };
  std::array<Group, Shape::kMaxRank> items{};
  std::size_t count = 0;
  std::int64_t reduced_numel = 1;

  DimGroups(const Shape& shape, std::uint32_t dim_mask) {
    std::int64_t kept_numel = 1;
    for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank()); ++d) {
      const bool reduced = (dim_mask >> d & 1) != 0;
      const std::int64_t size = shape.dims()[d];
      (reduced ? reduced_numel : kept_numel) *= size;
      if (size == 1) continue;
      if (count > 0 && items[count - 1].reduced == reduced) {
        items[count - 1].size *= size;
      } else {
        items[count++] = {size, reduced};
      }
    }
    if (reduced_numel != 0) return;
    // Nothing is read, but every result is written: as one group of no elements, so that no other size stands before
    // it.
    items[0] = {0, true};
    items[1] = {kept_numel, false};
    count = 2;
  }
  std::int64_t numel_between(std::size_t begin, std::size_t end) const {
    std::int64_t product = 1;
    for (std::size_t i = begin; i < end; ++i) product *= items[i].size;
    return product;
  }
  void remove(std::size_t i) {
    std::copy(items.begin() + static_cast<std::ptrdiff_t>(i) + 1, items.begin() + static_cast<std::ptrdiff_t>(count),
              items.begin() + static_cast<std::ptrdiff_t>(i));
    --count;
  }
  // The largest reduced group, or count if there is none.
  std::size_t largest_reduced() const {
    std::size_t best = count;
    for (std::size_t i = 0; i < count; ++i) {
      if (items[i].reduced && (best == count || items[i].size > items[best].size)) best = i;
    }
    return best;
  }
};

}  // namespace heddle
