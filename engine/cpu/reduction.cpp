// Sums, means and extremes over any dimensions, and argmax. Used through CpuBackend. The order of additions follows
// from the shape alone, so results do not depend on the number of threads. f32 and bf16 are summed in double.
#include <algorithm>
#include <array>
#include <limits>

#include "engine/core/merged_dims.h"
#include "engine/core/parallel.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

constexpr std::int64_t kLanes = 128;        // accumulators of one task
constexpr std::int64_t kTaskNumel = 16384;  // elements that one task reads

struct SumOf {
  template <class A>
  static constexpr A start() {
    return A{};
  }
  template <class A>
  static A join(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    } else {
      return a + b;
    }
  }
};
// Extremes start from their weakest value; a NaN wins and stays.
struct MaxOf {
  template <class A>
  static constexpr A start() {
    return std::is_integral_v<A> ? std::numeric_limits<A>::lowest() : -std::numeric_limits<A>::infinity();
  }
  template <class A>
  static A join(A a, A b) {
    return b > a || b != b ? b : a;
  }
};
struct MinOf {
  template <class A>
  static constexpr A start() {
    return std::is_integral_v<A> ? std::numeric_limits<A>::max() : std::numeric_limits<A>::infinity();
  }
  template <class A>
  static A join(A a, A b) {
    return b < a || b != b ? b : a;
  }
};

// Sums in double or 64 bits; extremes in the element's own arithmetic type.
template <class T, class Op>
using Accumulator = std::conditional_t<std::is_same_v<Op, SumOf>,
                                       std::conditional_t<std::is_integral_v<T>, std::int64_t, double>, Compute<T>>;

// Joins rows [0, rows) of `width` columns, `stride` elements apart, into out[width], width <= kLanes.
template <class Op, class T, class A>
void reduce_rows(const T* x, std::int64_t rows, std::int64_t stride, std::int64_t width, A* out) {
  std::array<A, kLanes> lanes;
  // Rows that lie one behind the other are read as fewer, longer rows, whose lanes are joined at the end.
  const std::int64_t fold =
      stride == width ? std::clamp<std::int64_t>(kLanes / width, 1, std::max<std::int64_t>(rows, 1)) : 1;
  const std::int64_t n = fold * width;
  lanes.fill(Op::template start<A>());
  const std::int64_t whole = rows / fold;
  for (std::int64_t r = 0; r < whole; ++r) {
    const T* const row = x + r * fold * stride;
    for (std::int64_t i = 0; i < n; ++i)
      lanes[static_cast<std::size_t>(i)] = Op::join(lanes[static_cast<std::size_t>(i)], static_cast<A>(load(row[i])));
  }
  for (std::int64_t r = whole * fold; r < rows; ++r) {
    const T* const row = x + r * stride;
    for (std::int64_t i = 0; i < width; ++i)
      lanes[static_cast<std::size_t>(i)] = Op::join(lanes[static_cast<std::size_t>(i)], static_cast<A>(load(row[i])));
  }
  for (std::int64_t i = 0; i < width; ++i) {
    A total = lanes[static_cast<std::size_t>(i)];
    for (std::int64_t j = i + width; j < n; j += width) total = Op::join(total, lanes[static_cast<std::size_t>(j)]);
    out[i] = total;
  }
}

// x (outer, n, inner) over n; put(i, value) receives element i of the (outer, inner) result. Cut into tasks of fixed
// size: (outer index, block of n, chunk of inner).
template <class Op, class T, class Put>
void reduce_middle(const T* x, std::int64_t outer, std::int64_t n, std::int64_t inner, const Put& put) {
  using A = Accumulator<T, Op>;
  const std::int64_t width = std::min(inner, kLanes), chunks = (inner + width - 1) / width;
  const std::int64_t block = std::max<std::int64_t>(1, kTaskNumel / width);
  const std::int64_t blocks = std::max<std::int64_t>(1, (n + block - 1) / block);
  const std::int64_t task_numel = std::max<std::int64_t>(1, std::min(n, block) * width);
  Tensor scratch;
  A* partial = nullptr;
  if (blocks > 1) {
    scratch = Tensor::empty({outer * blocks * inner}, dtype_of_v<A>);
    partial = data_of<A>(scratch);
  }
  parallel_for(outer * blocks * chunks, std::max<std::int64_t>(1, kGrain / task_numel),
               [&](std::int64_t begin, std::int64_t end) {
                 std::array<A, kLanes> out;
                 for (std::int64_t task = begin; task < end; ++task) {
                   const std::int64_t chunk = task % chunks, b = task / chunks % blocks, o = task / chunks / blocks;
                   const std::int64_t c = chunk * width, w = std::min(width, inner - c);
                   const std::int64_t first = b * block, rows = std::min(block, n - first);
                   A* const to = partial == nullptr ? out.data() : partial + (o * blocks + b) * inner + c;
                   reduce_rows<Op>(x + (o * n + first) * inner + c, rows, inner, w, to);
                   if (partial != nullptr) continue;
                   for (std::int64_t i = 0; i < w; ++i) put(o * inner + c + i, to[i]);
                 }
               });
  if (partial == nullptr) return;
  parallel_for(outer * inner, std::max<std::int64_t>(1, kGrain / blocks), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const A* const own = partial + i / inner * blocks * inner + i % inner;
      A total = own[0];
      for (std::int64_t b = 1; b < blocks; ++b) total = Op::join(total, own[b * inner]);
      put(i, total);
    }
  });
}

// Reduces one group after the other, the largest first; what is left between is kept in the accumulator's type.
template <class Op, class T, class Put>
void reduce_groups(const T* x, DimGroups groups, const Put& put) {
  using A = Accumulator<T, Op>;
  const std::size_t at = groups.largest_reduced();
  const bool none = at == groups.count;
  const std::int64_t outer = groups.numel_between(0, at), n = none ? 1 : groups.items[at].size;
  const std::int64_t inner = none ? 1 : groups.numel_between(at + 1, groups.count);
  if (!none) groups.remove(at);
  if (outer * inner == 0) return;
  if (groups.largest_reduced() == groups.count) return reduce_middle<Op>(x, outer, n, inner, put);
  Tensor between = Tensor::empty({outer * inner}, dtype_of_v<A>);
  A* const to = data_of<A>(between);
  reduce_middle<Op>(x, outer, n, inner, [to](std::int64_t i, A value) { to[i] = value; });
  reduce_groups<Op>(static_cast<const A*>(to), groups, put);
}

// Ties go to the first element, a NaN counts as largest.
template <class C>
bool beats(C candidate, C best) {
  return candidate > best || (candidate != candidate && best == best);
}

}  // namespace

void CpuBackend::reduce(ReduceKind kind, const Tensor& x, std::uint32_t dim_mask, Tensor& y, WriteMode mode) {
  const DimGroups groups(x.shape(), dim_mask);
  visit_all("reduce", x.dtype(), [&]<class T>(TypeTag<T>) {
    const auto run = [&]<class R, class Op>(TypeTag<R>, Op, double factor) {
      R* const to = data_of<R>(y);
      const bool scaled = kind == ReduceKind::mean, add = mode == WriteMode::add;
      reduce_groups<Op>(data_of<T>(x), groups, [=]<class A>(std::int64_t i, A value) {
        if constexpr (!std::is_integral_v<A>) {
          if (scaled) value = static_cast<A>(value * static_cast<A>(factor));
        }
        if (add) value = SumOf::join(value, static_cast<A>(load(to[i])));
        to[i] = convert_to<R>(value);
      });
    };
    switch (kind) {
      case ReduceKind::sum:
        // Integers may be counted into i64.
        if (std::is_integral_v<T> && y.dtype() == DType::i64) return run(TypeTag<std::int64_t>{}, SumOf{}, 1);
        return run(TypeTag<T>{}, SumOf{}, 1);
      case ReduceKind::mean:
        if (std::is_integral_v<T>) throw_not_supported("mean", x.dtype());
        return run(TypeTag<T>{}, SumOf{}, 1 / static_cast<double>(groups.reduced_numel));
      case ReduceKind::max: return run(TypeTag<T>{}, MaxOf{}, 1);
      case ReduceKind::min: return run(TypeTag<T>{}, MinOf{}, 1);
    }
  });
}

void CpuBackend::argmax(const Tensor& x, int dim, Tensor& y) {
  if (y.numel() == 0) return;
  const std::int64_t n = x.dim(dim), inner = x.shape().numel_between(dim + 1, x.rank());
  visit_all("argmax", x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = data_of<T>(x);
    auto* const to = data_of<std::int64_t>(y);
    parallel_for(y.numel(), std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, n)),
                 [=](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const T* const column = from + i / inner * n * inner + i % inner;
                     std::int64_t best = 0;
                     for (std::int64_t j = 1; j < n; ++j) {
                       if (beats(load(column[j * inner]), load(column[best * inner]))) best = j;
                     }
                     to[i] = best;
                   }
                 });
  });
}

}  // namespace heddle::cpu
