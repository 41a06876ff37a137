#include "kernels/device/reduce.cuh"

#include "kernels/device/argmax.cuh"

#include <algorithm>
#include <numeric>

#include "kernels/launch/reduce.h"
#include "kernels/launch/walk.h"

namespace heddle::cuda {
namespace {

constexpr std::int64_t kPartNumel = 8192;  // elements that are worth a block of their own
constexpr std::int64_t kMaxTasks = 1024;   // blocks that fill any device
constexpr std::int64_t kThreadRow = 16;    // rows in one piece up to here are read by a thread,
constexpr std::int64_t kWarpRow = 1024;    // up to here by a warp
constexpr std::int64_t kNarrow = 128;      // inner dimensions up to here are read as one run

enum class Way { rows, narrow, wide };

// How an array is reduced. Depends on the sizes only.
struct Plan {
  Way way = Way::rows;
  ReduceShape shape;
  int team = 32;  // threads of a row, for rows
};

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

Plan plan_of(const MiddleDim& dim) {
  Plan plan{.shape = {.outer = dim.outer, .n = dim.n, .inner = dim.inner}};
  std::int64_t tasks = dim.outer;  // without splits
  if (dim.inner == 1 && dim.n > kThreadRow) {
    plan.way = Way::rows;
    plan.team = dim.n > kWarpRow ? kReduceThreads : 32;
  } else if (dim.inner <= kNarrow && dim.n * dim.inner > kWarpRow) {
    plan.way = Way::narrow;
  } else {
    plan.way = Way::wide;
    tasks = up(dim.outer * dim.inner, kReduceThreads);
  }
  const bool splittable = plan.way != Way::rows || plan.team > 32;
  const std::int64_t read_by_task = dim.outer * dim.n * dim.inner / std::max<std::int64_t>(tasks, 1);
  const std::int64_t wanted = std::min(up(read_by_task, kPartNumel), kMaxTasks / std::max<std::int64_t>(tasks, 1));
  const std::int64_t splits = splittable ? std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(dim.n, 1)) : 1;
  // Parts of a multiple of 8 rows begin where a pack may begin, if the array does.
  plan.shape.part = splits == 1 ? dim.n : up(up(dim.n, splits), 8) * 8;
  plan.shape.splits = splits == 1 ? 1 : up(dim.n, plan.shape.part);
  return plan;
}

std::size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::f64:
    case ElementType::i64: return 8;
    case ElementType::f32:
    case ElementType::i32: return 4;
    case ElementType::bf16: return 2;
    case ElementType::u8: return 1;
  }
  return 0;
}

template <class A>
constexpr ElementType element_type_of() {
  if constexpr (std::is_same_v<A, float>) return ElementType::f32;
  if constexpr (std::is_same_v<A, double>) return ElementType::f64;
  return ElementType::i64;
}

// One pass: writes (outer, splits, inner).
template <class Op>
void run_pass(Joining joining, const typename Op::Element* x, const Plan& plan, const ReduceOutput& output,
              cudaStream_t stream) {
  using T = typename Op::Element;
  constexpr int N = static_cast<int>(16 / sizeof(T));
  const ReduceShape& shape = plan.shape;
  const ReduceTarget target{output.factor, output.type, output.add};
  const std::int64_t tasks = shape.outer * shape.splits;
  const Access in = reads(x, shape.outer * shape.n * shape.inner);
  Access out = writes_bytes(output.y, static_cast<std::size_t>(tasks * shape.inner) * size_of(output.type));
  out.read = output.add;
  const auto start = [&](const char* name, auto kernel, const LaunchShape& grid, auto way) {
    launch(name, kernel, grid, stream, {in, out}, x, shape, way, joining, output.y, target);
  };
  if (plan.way == Way::rows) {
    return start("reduce_rows", reduce_rows_kernel<Op>, cover(tasks * plan.team, kReduceThreads), plan.team);
  }
  // Every row, or every part, must begin at a multiple of 16 bytes for packs.
  const bool aligned = is_aligned(x, 16) && (shape.outer == 1 || shape.n * shape.inner % N == 0);
  if (plan.way == Way::narrow) {
    const bool packed = aligned && (shape.splits == 1 || shape.part % N == 0);
    const std::int64_t n = packed ? N : 1;
    const std::int64_t period = shape.inner / std::gcd(shape.inner, n);
    const auto threads = static_cast<int>(kReduceThreads / period * period);
    const LaunchShape grid{dim3(static_cast<unsigned>(tasks)), dim3(kReduceThreads)};
    if (packed) return start("reduce_narrow", reduce_narrow_kernel<Op, N>, grid, threads);
    return start("reduce_narrow", reduce_narrow_kernel<Op, 1>, grid, threads);
  }
  const bool packed = aligned && shape.inner % N == 0;
  unsigned height = 1;
  while (height < 8 && height < shape.part) height *= 2;
  const dim3 block(kReduceThreads / height, height);
  const std::int64_t column_blocks = up(shape.outer * shape.inner, std::int64_t{block.x} * (packed ? N : 1));
  const LaunchShape grid{dim3(static_cast<unsigned>(shape.splits * column_blocks)), block};
  const WideDividers dividers{Divider(column_blocks), Divider(shape.inner)};
  if (packed) return start("reduce_wide", reduce_wide_kernel<Op, N>, grid, dividers);
  start("reduce_wide", reduce_wide_kernel<Op, 1>, grid, dividers);
}

// Second: the operation that joins partial results.
template <class First, class Second>
void run(Joining joining, const typename First::Element* x, const MiddleDim& dim, const ReduceOutput& output,
         void* scratch, cudaStream_t stream) {
  using A = typename First::Accumulator;
  if (dim.outer * dim.inner == 0) return;
  const Plan plan = plan_of(dim);
  if (plan.shape.splits == 1) return run_pass<First>(joining, x, plan, output, stream);
  run_pass<First>(joining, x, plan, {.y = scratch, .type = element_type_of<A>()}, stream);
  Plan last = plan_of({dim.outer, plan.shape.splits, dim.inner});
  last.shape.splits = 1;
  last.shape.part = last.shape.n;
  run_pass<Second>(joining, static_cast<const A*>(scratch), last, output, stream);
}

}  // namespace

std::size_t reduce_scratch_nbytes(const MiddleDim& dim) {
  const Plan plan = plan_of(dim);
  if (plan.shape.splits == 1) return 0;
  return static_cast<std::size_t>(dim.outer * plan.shape.splits * dim.inner) * sizeof(double);
}

template <class T>
void reduce(Joining joining, const T* x, const MiddleDim& dim, const ReduceOutput& output, void* scratch,
            cudaStream_t stream) {
  if (joining == Joining::sum) {
    return run<SumOf<T>, SumOf<typename SumOf<T>::Accumulator>>(joining, x, dim, output, scratch, stream);
  }
  if constexpr (!std::is_same_v<T, double>) {
    run<ExtremeOf<T>, ExtremeOf<Compute<T>>>(joining, x, dim, output, scratch, stream);
  }
}

template <class T>
void argmax(const T* x, const MiddleDim& dim, std::int64_t* y, cudaStream_t stream) {
  const std::int64_t results = dim.outer * dim.inner;
  if (results == 0) return;
  // Lanes of a warp read neighbours only where n is the innermost dimension.
  const int team = dim.inner == 1 && dim.n > kThreadRow ? 32 : 1;
  launch("argmax", argmax_kernel<T>, cover(results * team), stream, {reads(x, results * dim.n), writes(y, results)}, x,
         dim.n, Divider(dim.inner), results, team, y);
}

template void argmax(const float*, const MiddleDim&, std::int64_t*, cudaStream_t);
template void argmax(const __nv_bfloat16*, const MiddleDim&, std::int64_t*, cudaStream_t);
template void argmax(const std::int32_t*, const MiddleDim&, std::int64_t*, cudaStream_t);
template void argmax(const std::int64_t*, const MiddleDim&, std::int64_t*, cudaStream_t);
template void argmax(const std::uint8_t*, const MiddleDim&, std::int64_t*, cudaStream_t);
template void reduce(Joining, const float*, const MiddleDim&, const ReduceOutput&, void*, cudaStream_t);
template void reduce(Joining, const double*, const MiddleDim&, const ReduceOutput&, void*, cudaStream_t);
template void reduce(Joining, const __nv_bfloat16*, const MiddleDim&, const ReduceOutput&, void*, cudaStream_t);
template void reduce(Joining, const std::int64_t*, const MiddleDim&, const ReduceOutput&, void*, cudaStream_t);

}  // namespace heddle::cuda
