#include "kernels/device/softmax.cuh"

#include <algorithm>

#include "engine/core/error.h"
#include "kernels/device/cross_entropy.cuh"
#include "kernels/launch/launch.h"
#include "kernels/launch/softmax.h"

namespace heddle::cuda {
namespace {

constexpr std::int64_t kWarpRow = 1024;  // rows up to here are for a warp, longer ones for a block

int softmax_team(std::int64_t n) { return n <= kWarpRow ? 32 : kTeamBlock; }

// Few classes are quicker read by one thread than agreed upon by a warp.
int cross_entropy_team(std::int64_t classes) { return classes <= 32 ? 1 : 32; }

// Blocks of one call: up to 256 rows of few classes one block, which needs no other to add up its statistics.
unsigned cross_entropy_blocks(std::int64_t rows, std::int64_t classes) {
  const std::int64_t teams = kTeamBlock / cross_entropy_team(classes);
  return static_cast<unsigned>(std::clamp<std::int64_t>((rows + teams - 1) / teams, 1, 1024));
}

}  // namespace

template <class T>
void softmax_forward(const T* x, std::int64_t rows, std::int64_t n, bool log, T* y, cudaStream_t stream) {
  const std::int64_t count = rows * n;
  if (count == 0) return;
  const int team = softmax_team(n);
  launch("softmax_forward", softmax_forward_kernel<T>, cover(rows * team, kTeamBlock), stream,
         {reads(x, count), writes(y, count)}, x, rows, n, team, log, y);
}

template <class T>
void softmax_backward(const T* y, const T* dy, std::int64_t rows, std::int64_t n, bool log, T* dx, bool add,
                      cudaStream_t stream) {
  const std::int64_t count = rows * n;
  if (count == 0) return;
  const int team = softmax_team(n);
  launch("softmax_backward", softmax_backward_kernel<T>, cover(rows * team, kTeamBlock), stream,
         {reads(y, count), reads(dy, count), add ? updates(dx, count) : writes(dx, count)}, y, dy, rows, n, team, log,
         dx, add);
}

template void softmax_forward(const float*, std::int64_t, std::int64_t, bool, float*, cudaStream_t);
template void softmax_forward(const __nv_bfloat16*, std::int64_t, std::int64_t, bool, __nv_bfloat16*, cudaStream_t);
template void softmax_backward(const float*, const float*, std::int64_t, std::int64_t, bool, float*, bool,
                               cudaStream_t);
template void softmax_backward(const __nv_bfloat16*, const __nv_bfloat16*, std::int64_t, std::int64_t, bool,
                               __nv_bfloat16*, bool, cudaStream_t);

std::size_t cross_entropy_scratch_nbytes(std::int64_t rows, std::int64_t classes) {
  const unsigned blocks = cross_entropy_blocks(rows, classes);
  return blocks == 1 ? 0 : blocks * sizeof(LossTotals);
}

void cross_entropy(const CrossEntropyArguments& a, cudaStream_t stream) {
  const bool totals = a.stats != nullptr || a.loss != nullptr;
  if (a.rows == 0 && !totals) return;
  HEDDLE_CHECK(a.rows == 0 || a.classes > 0, "cross_entropy: no classes");
  const CrossEntropyCall call{.logits = a.logits,
                              .labels = a.labels,
                              .class_weight = a.class_weight,
                              .row_loss = a.row_loss,
                              .dlogits = a.dlogits,
                              .rows = a.rows,
                              .classes = a.classes,
                              .ignore_index = a.ignore_index,
                              .smoothing = static_cast<float>(a.smoothing)};
  const unsigned blocks = cross_entropy_blocks(a.rows, a.classes);
  const bool joined = totals && blocks > 1;
  const LossStatistics statistics{.loss = a.loss,
                                  .stats = a.stats,
                                  .add = a.add_to_stats,
                                  .partials = joined ? static_cast<LossTotals*>(a.scratch) : nullptr,
                                  .ticket = joined ? a.ticket : nullptr};
  launch("cross_entropy", cross_entropy_kernel, {dim3(blocks), dim3(kTeamBlock)}, stream,
         {reads(a.logits, a.rows * a.classes), reads(a.labels, a.rows), reads(a.class_weight, a.classes),
          writes(a.row_loss, a.rows), writes(a.dlogits, a.rows * a.classes), writes(a.loss, 1),
          a.add_to_stats ? updates(a.stats, kLossStats) : writes(a.stats, kLossStats),
          updates(statistics.partials, joined ? blocks : 0), updates(statistics.ticket, joined ? 1 : 0)},
         call, cross_entropy_team(a.classes), statistics);
}

}  // namespace heddle::cuda
