// Cross-entropy of rows of logits: losses, their gradient and the statistics of the step in one kernel.
#pragma once

#include "kernels/device/softmax.cuh"

namespace heddle::cuda {

// Sums over rows.
struct LossTotals {
  double weight, loss, correct, samples;
};

struct CrossEntropyCall {
  const float* logits;         // (rows, classes)
  const std::int64_t* labels;  // (rows)
  const float* class_weight;   // (classes), or null
  float* row_loss;             // (rows), or null
  float* dlogits;              // (rows, classes), or null
  std::int64_t rows, classes;
  std::int64_t ignore_index;
  float smoothing;
};

inline constexpr int kLossStats = 8;

// What the sums over all rows are written to.
struct LossStatistics {
  float* loss;   // the sum of the row losses, or null
  float* stats;  // (kLossStats): weight sum, loss sum, correct, samples, 1 if the loss sum is not finite; or null
  bool add;      // to stats; else all of it is overwritten, places without a meaning with 0
  LossTotals* partials;  // one for each block, if there is more than one
  unsigned* ticket;      // 0 before and after: how many blocks are done
};

__device__ inline void put_statistics(const LossTotals& totals, const LossStatistics& to) {
  if (to.loss != nullptr) *to.loss = static_cast<float>(totals.loss);
  if (to.stats == nullptr) return;
  // Infinity and NaN are what does not give 0 here.
  const bool finite = totals.loss - totals.loss == 0;
  const float values[kLossStats] = {static_cast<float>(totals.weight), static_cast<float>(totals.loss),
                                    static_cast<float>(totals.correct), static_cast<float>(totals.samples),
                                    finite ? 0.0f : 1.0f};
  for (int i = 0; i < kLossStats; ++i) to.stats[i] = to.add ? to.stats[i] + values[i] : values[i];
}

// The largest logit and its first place; valid in every lane of a team of 1 or 32 threads. NaNs are left out.
struct Largest {
  float value;
  std::int64_t at;
};
__device__ inline Largest largest_of_row(const float* row, std::int64_t n, int lane, int team) {
  Largest best{-std::numeric_limits<float>::infinity(), lane < n ? lane : n};
  for (std::int64_t c = lane; c < n; c += team) {
    if (row[c] > best.value) best = {row[c], c};
  }
  for (int distance = team / 2; distance > 0; distance /= 2) {
    const Largest other{__shfl_xor_sync(0xffffffffu, best.value, distance),
                        __shfl_xor_sync(0xffffffffu, best.at, distance)};
    if (other.value > best.value || (other.value == best.value && other.at < best.at)) best = other;
  }
  return best;
}

// With p = softmax(x), q_c = (1 - e) w_c [c = label] + e / K w_c and Q = sum of q:
//   loss = sum over c of q_c * -log p_c,   d loss / d x_c = Q p_c - q_c.
// Terms with q_c = 0 are left out, so that p_c = 0 there does no harm. Called by all threads of a team; lane 0 adds the
// row to totals.
__device__ inline void cross_entropy_row(const CrossEntropyCall& call, std::int64_t r, int lane, int team,
                                         LossTotals& totals) {
  const std::int64_t n = call.classes, label = call.labels[r];
  const float* const x = call.logits + r * n;
  float* const dx = call.dlogits == nullptr ? nullptr : call.dlogits + r * n;
  if (label == call.ignore_index || label < 0 || label >= n) {
    const float loss = label == call.ignore_index ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    if (lane == 0) {
      if (call.row_loss != nullptr) call.row_loss[r] = loss;
      totals.loss += static_cast<double>(loss);
    }
    if (dx != nullptr) {
      for (std::int64_t c = lane; c < n; c += team) dx[c] = 0.0f;
    }
    return;
  }
  const Largest best = largest_of_row(x, n, lane, team);
  float sum = 0.0f;
  for (std::int64_t c = lane; c < n; c += team) sum += expf(x[c] - best.value);
  const float log_sum = logf(team_sum(team, sum));

  const auto weight = [&call](std::int64_t c) { return call.class_weight == nullptr ? 1.0f : call.class_weight[c]; };
  const float label_weight = weight(label);
  const float on_label = (1.0f - call.smoothing) * label_weight, on_each = call.smoothing / static_cast<float>(n);
  // A NaN logit must show even where the label's own term is left out.
  float loss = log_sum != log_sum ? log_sum : on_label == 0 ? 0.0f : -on_label * (x[label] - best.value - log_sum);
  float total = on_label;  // Q
  if (call.smoothing != 0) {
    float smooth = 0.0f, smooth_weight = 0.0f;
    for (std::int64_t c = lane; c < n; c += team) {
      const float q = on_each * weight(c);
      if (q != 0) smooth -= q * (x[c] - best.value - log_sum);
      smooth_weight += q;
    }
    loss += team_sum(team, smooth);
    total += team_sum(team, smooth_weight);
  }
  if (lane == 0) {
    if (call.row_loss != nullptr) call.row_loss[r] = loss;
    totals.weight += static_cast<double>(label_weight);
    totals.loss += static_cast<double>(loss);
    totals.correct += best.at == label ? 1 : 0;
    totals.samples += 1;
  }
  if (dx == nullptr) return;
  for (std::int64_t c = lane; c < n; c += team) {
    const float q = on_each * weight(c) + (c == label ? on_label : 0.0f);
    dx[c] = total * expf(x[c] - best.value - log_sum) - q;
  }
}

__device__ inline LossTotals block_totals(LossTotals totals) {
  totals.weight = team_sum(kTeamBlock, totals.weight);
  totals.loss = team_sum(kTeamBlock, totals.loss);
  totals.correct = team_sum(kTeamBlock, totals.correct);
  totals.samples = team_sum(kTeamBlock, totals.samples);
  return totals;
}

// One team of 1 or 32 threads: every row whose number is its own modulo the number of teams. The block that ends last
// writes the sums of all blocks, joined in the blocks' order. Blocks of 256; grid: any. Bytes a logit: one read, one
// written if there is a gradient. Deterministic for a grid.
__global__ void __launch_bounds__(kTeamBlock)
    cross_entropy_kernel(CrossEntropyCall call, int team, LossStatistics statistics) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % team;
  const std::int64_t teams = static_cast<std::int64_t>(gridDim.x) * kTeamBlock / team;
  LossTotals totals{};
  for (std::int64_t r = grid_thread() / team; r < call.rows; r += teams) {
    cross_entropy_row(call, r, lane, team, totals);
  }
  if (statistics.stats == nullptr && statistics.loss == nullptr) return;
  totals = block_totals(totals);
  if (gridDim.x > 1) {
    __shared__ bool is_last;
    if (thread == 0) {
      statistics.partials[blockIdx.x] = totals;
      __threadfence();
      is_last = atomicAdd(statistics.ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (thread == 0) *statistics.ticket = 0;
    totals = LossTotals{};
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kTeamBlock) {
      const LossTotals part = statistics.partials[b];
      totals.weight += part.weight;
      totals.loss += part.loss;
      totals.correct += part.correct;
      totals.samples += part.samples;
    }
    totals = block_totals(totals);
  }
  if (thread == 0) put_statistics(totals, statistics);
}

}  // namespace heddle::cuda
