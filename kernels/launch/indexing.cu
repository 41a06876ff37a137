#include "kernels/device/indexing.cuh"

#include <initializer_list>
#include <numeric>

#include "kernels/device/permute.cuh"
#include "kernels/launch/indexing.h"
#include "kernels/launch/launch.h"

namespace heddle::cuda {
namespace {

template <class U>
struct UnitTag {
  using type = U;
};

// Calls fn with the widest unit that divides nbytes, which is a size or distance, and the addresses.
template <class Fn>
void with_unit(std::int64_t nbytes, std::initializer_list<const void*> addresses, Fn&& fn) {
  std::uintptr_t common = static_cast<std::uintptr_t>(nbytes) | 16;
  for (const void* address : addresses) common |= reinterpret_cast<std::uintptr_t>(address);
  switch (common & (~common + 1)) {  // the lowest bit that is set
    case 1: return fn(UnitTag<std::uint8_t>{});
    case 2: return fn(UnitTag<std::uint16_t>{});
    case 4: return fn(UnitTag<std::uint32_t>{});
    case 8: return fn(UnitTag<std::uint64_t>{});
    default: return fn(UnitTag<uint4>{});
  }
}

template <class Fn>
void with_element(std::size_t nbytes, Fn&& fn) {
  switch (nbytes) {
    case 1: return fn(UnitTag<std::uint8_t>{});
    case 2: return fn(UnitTag<std::uint16_t>{});
    case 4: return fn(UnitTag<std::uint32_t>{});
    default: return fn(UnitTag<std::uint64_t>{});
  }
}

// Elements from the first to the last of `outer` pieces.
std::int64_t span_of(std::int64_t outer, std::int64_t step, std::int64_t piece) { return (outer - 1) * step + piece; }

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Dimensions of merged but the ones left out, innermost first.
PermutePlan plan_of(const PermutedDims& merged, std::size_t left_out, std::size_t left_out_too) {
  static_assert(PermutePlan::kMaxRank == Shape::kMaxRank);
  PermutePlan plan;
  std::int64_t y_step = 1;
  for (std::size_t d = merged.rank; d-- > 0; y_step *= merged.dims[d]) {
    if (d == left_out || d == left_out_too) continue;
    plan.dims[plan.rank] = Divider(merged.dims[d]);
    plan.x_steps[plan.rank] = merged.steps[d];
    plan.y_steps[plan.rank++] = y_step;
  }
  return plan;
}

constexpr std::size_t kNone = Shape::kMaxRank;

template <class U>
void permute_units(const void* x, const PermutedDims& merged, std::int64_t count, void* y, cudaStream_t stream) {
  const U* const from = static_cast<const U*>(x);
  U* const to = static_cast<U*>(y);
  launch("permute", permute_kernel<U>, cover(count), stream, {reads(from, count), writes(to, count)}, from,
         plan_of(merged, kNone, kNone), count, to);
}

template <class U>
void permute_tiles(const void* x, const PermutedDims& merged, std::size_t across, std::int64_t count, void* y,
                   cudaStream_t stream) {
  const std::size_t last = merged.rank - 1;
  TilePlan plan{.across = merged.dims[across],
                .along = merged.dims[last],
                .x_step = merged.steps[last],
                .y_step = 1,
                .across_tiles = {},
                .along_tiles = {},
                .others = plan_of(merged, across, last)};
  for (std::size_t d = across + 1; d < merged.rank; ++d) plan.y_step *= merged.dims[d];
  const std::int64_t across_tiles = up(plan.across, kTile), along_tiles = up(plan.along, kTile);
  plan.across_tiles = Divider(across_tiles);
  plan.along_tiles = Divider(along_tiles);
  const std::int64_t blocks = count / (plan.across * plan.along) * across_tiles * along_tiles;
  const U* const from = static_cast<const U*>(x);
  U* const to = static_cast<U*>(y);
  launch("permute_tiles", permute_tiles_kernel<U>, {dim3(static_cast<unsigned>(blocks)), dim3(kTile, kTileRows)},
         stream, {reads(from, count), writes(to, count)}, from, plan, to);
}

}  // namespace

void permute(const void* x, const Shape& shape, std::span<const int> perm, std::size_t element_nbytes, void* y,
             cudaStream_t stream) {
  const std::int64_t count = shape.numel(), nbytes = static_cast<std::int64_t>(element_nbytes);
  if (count == 0) return;
  PermutedDims merged(shape, perm);
  const std::size_t last = merged.rank - 1;
  if (merged.steps[last] == 1) {
    // Rows stay in one piece: they are moved in the widest units that fit.
    std::int64_t row_nbytes = merged.dims[last] * nbytes;
    return with_unit(row_nbytes, {x, y}, [&]<class U>(UnitTag<U>) {
      const auto unit = static_cast<std::int64_t>(sizeof(U));
      merged.dims[last] = row_nbytes / unit;
      for (std::size_t d = 0; d < last; ++d) merged.steps[d] = merged.steps[d] * nbytes / unit;
      permute_units<U>(x, merged, count * nbytes / unit, y, stream);
    });
  }
  std::size_t across = 0;
  while (merged.steps[across] != 1) ++across;
  // Narrow tiles would leave most of a block without work.
  const bool tiles = merged.dims[across] >= kTileRows && merged.dims[last] >= kTileRows;
  with_element(element_nbytes, [&]<class U>(UnitTag<U>) {
    if (tiles) return permute_tiles<U>(x, merged, across, count, y, stream);
    permute_units<U>(x, merged, count, y, stream);
  });
}

void copy_range(const void* x, const RangeCopy& range, std::size_t element_nbytes, void* y, cudaStream_t stream) {
  const auto row = range.x.inner * static_cast<std::int64_t>(element_nbytes);
  const std::int64_t piece = range.n * row, x_step = range.x.n * row, y_step = range.y.n * row;
  if (range.x.outer * piece == 0) return;
  const auto* const from = static_cast<const unsigned char*>(x) + range.x_begin * row;
  auto* const to = static_cast<unsigned char*>(y) + range.y_begin * row;
  const bool several = range.x.outer > 1;
  with_unit(piece | (several ? x_step | y_step : 0), {from, to}, [&]<class U>(UnitTag<U>) {
    const auto unit = static_cast<std::int64_t>(sizeof(U));
    const U* const source = reinterpret_cast<const U*>(from);
    U* const target = reinterpret_cast<U*>(to);
    const std::int64_t count = range.x.outer * piece / unit;
    launch("copy_range", copy_pieces_kernel<U>, cover(count), stream,
           {reads_some(from, span_of(range.x.outer, x_step, piece), range.x.outer * piece),
            writes_some(to, span_of(range.x.outer, y_step, piece), range.x.outer * piece)},
           source, x_step / unit, Divider(piece / unit), count, y_step / unit, target);
  });
}

template <class T>
void add_range(const T* x, const RangeCopy& range, T* y, cudaStream_t stream) {
  const std::int64_t piece = range.n * range.x.inner, count = range.x.outer * piece;
  if (count == 0) return;
  const std::int64_t x_step = range.x.n * range.x.inner, y_step = range.y.n * range.x.inner;
  const T* const from = x + range.x_begin * range.x.inner;
  T* const to = y + range.y_begin * range.x.inner;
  launch("add_range", add_pieces_kernel<T>, cover(count), stream,
         {reads_some(from, span_of(range.x.outer, x_step, piece), count),
          updates_some(to, span_of(range.x.outer, y_step, piece), count)},
         from, x_step, Divider(piece), count, y_step, to);
}

void index_select(const void* x, std::int64_t x_rows, const std::int64_t* index, std::int64_t n, std::size_t row_nbytes,
                  void* y, cudaStream_t stream) {
  const auto row = static_cast<std::int64_t>(row_nbytes);
  if (n * row == 0) return;
  with_unit(row, {x, y}, [&]<class U>(UnitTag<U>) {
    const std::int64_t units = row / static_cast<std::int64_t>(sizeof(U)), count = n * units;
    const U* const from = static_cast<const U*>(x);
    U* const to = static_cast<U*>(y);
    launch("index_select", select_rows_kernel<U>, cover(count), stream,
           {reads(from, x_rows * units), reads(index, n), writes(to, count)}, from, index, Divider(units), count, to);
  });
}

void gather(const void* x, const AroundDim& x_dims, const std::int64_t* index, const AroundDim& y_dims,
            std::size_t element_nbytes, void* y, cudaStream_t stream) {
  const std::int64_t count = y_dims.outer * y_dims.n * y_dims.inner;
  if (count == 0) return;
  with_element(element_nbytes, [&]<class U>(UnitTag<U>) {
    const U* const from = static_cast<const U*>(x);
    U* const to = static_cast<U*>(y);
    launch("gather", gather_kernel<U>, cover(count), stream,
           {reads(from, x_dims.outer * x_dims.n * x_dims.inner), reads(index, count), writes(to, count)}, from,
           x_dims.n, index, Divider(y_dims.n * y_dims.inner), Divider(y_dims.inner), count, to);
  });
}

namespace {

template <class T>
void launch_scatter_add(const char* name, const T* x, const AroundDim& x_dims, const Access& index_access,
                        const IndexSteps& steps, const AroundDim& y_dims, T* y, cudaStream_t stream) {
  const std::int64_t x_count = x_dims.outer * x_dims.n * x_dims.inner;
  const std::int64_t y_count = y_dims.outer * y_dims.n * y_dims.inner;
  if (x_count == 0 || y_count == 0) return;
  launch(name, scatter_add_kernel<T>, cover(y_count), stream, {reads(x, x_count), index_access, updates(y, y_count)}, x,
         x_dims.n, static_cast<const std::int64_t*>(index_access.data), steps, Divider(y_dims.n * y_dims.inner),
         Divider(y_dims.inner), y_count, y);
}

// (outer, n, inner) of rows.
AroundDim rows_of(std::int64_t rows, std::int64_t row) { return AroundDim(Shape{rows, row}, 0); }

}  // namespace

template <class T>
void index_add(const T* x, const std::int64_t* index, std::int64_t n, std::int64_t row, T* y, std::int64_t y_rows,
               cudaStream_t stream) {
  launch_scatter_add("index_add", x, rows_of(n, row), reads(index, n), {.outer = 0, .n = 1, .inner = 0},
                     rows_of(y_rows, row), y, stream);
}

template <class T>
void scatter_add(const T* x, const AroundDim& x_dims, const std::int64_t* index, const AroundDim& y_dims, T* y,
                 cudaStream_t stream) {
  launch_scatter_add("scatter_add", x, x_dims, reads(index, x_dims.outer * x_dims.n * x_dims.inner),
                     {.outer = x_dims.n * x_dims.inner, .n = x_dims.inner, .inner = 1}, y_dims, y, stream);
}

#define HEDDLE_INSTANTIATE(T)                                                                                         \
  template void add_range(const T*, const RangeCopy&, T*, cudaStream_t);                                              \
  template void index_add(const T*, const std::int64_t*, std::int64_t, std::int64_t, T*, std::int64_t, cudaStream_t); \
  template void scatter_add(const T*, const AroundDim&, const std::int64_t*, const AroundDim&, T*, cudaStream_t)

HEDDLE_INSTANTIATE(float);
HEDDLE_INSTANTIATE(__nv_bfloat16);
HEDDLE_INSTANTIATE(std::int32_t);
HEDDLE_INSTANTIATE(std::int64_t);
HEDDLE_INSTANTIATE(std::uint8_t);

}  // namespace heddle::cuda
