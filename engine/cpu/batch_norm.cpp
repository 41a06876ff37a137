// Batch norm. Used through CpuBackend. Each pass runs over blocks of rows whose size follows from the shape alone, and
// the blocks' sums are joined in their order in double, so results do not depend on the number of threads. A ReLU's
// mask is a bit an element, block by block: less to read in the backward pass than y.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "engine/core/parallel.h"
#include "engine/cpu/batch_norm_kernels.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

constexpr std::int64_t kBlockNumel = 16384;  // elements of a block: they stay in the second-level cache

struct Rows {
  std::int64_t channels, rows, block, blocks;

  explicit Rows(const Tensor& x)
      : channels(x.dim(-1)),
        rows(channels == 0 ? 0 : x.numel() / channels),
        block(std::max<std::int64_t>(1, kBlockNumel / std::max<std::int64_t>(1, channels))),
        blocks((rows + block - 1) / block) {}

  // Of all blocks' masks, each beginning at a byte of its own.
  template <class K>
  std::int64_t mask_nbytes() const {
    return blocks * K::mask_nbytes(block * channels);
  }
  // Calls body(b, first row, number of rows) for every block.
  template <class Body>
  void for_each_block(const Body& body) const {
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, block * channels));
    parallel_for(blocks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) body(b, b * block, std::min(block, rows - b * block));
    });
  }
};

// Number of rows, and each channel's mean and sum of squared differences, of some of the rows.
struct Moments {
  double count = 0;
  std::vector<double> mean, m2;

  explicit Moments(std::int64_t channels)
      : mean(static_cast<std::size_t>(channels)), m2(static_cast<std::size_t>(channels)) {}

  // Adds other rows. Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
  // Variances", 1979.
  void join(double other_count, const double* other_mean, const double* other_m2) {
    if (other_count == 0) return;
    const double total = count + other_count, share = other_count / total, both = count * share;
    for (std::size_t c = 0; c < mean.size(); ++c) {
      const double delta = other_mean[c] - mean[c];
      mean[c] += delta * share;
      m2[c] += other_m2[c] + delta * delta * both;
    }
    count = total;
  }
};

// Two sums of each channel: of all blocks, or of all ranks.
struct SumPair {
  std::vector<double> dz, dz_xhat;
  double count = 0;
};

// Calls fn(kernels) with the struct of batch_norm_kernels.h that takes the dtype.
template <class Fn>
void with_kernels(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::f32: return fn(SimdBatchNorm{});
    case DType::bf16: return fn(Bf16BatchNorm{});
    case DType::f64: return fn(PlainBatchNorm{});
    default: throw_not_supported("batch_norm", dtype);
  }
}

// Channel values as the kernels read them: repeated.
template <class K>
std::vector<typename K::Channel> repeated(std::vector<typename K::Channel> values) {
  const std::size_t channels = values.size();
  const auto period = static_cast<std::size_t>(K::period(static_cast<std::int64_t>(channels)));
  values.resize(period);
  for (std::size_t i = channels; i < period; ++i) values[i] = values[i - channels];
  return values;
}
template <class K>
std::vector<typename K::Channel> channel_values(const Tensor& v) {
  const auto* const data = data_of<typename K::Channel>(v);
  return repeated<K>({data, data + v.numel()});
}

template <class T>
T* advance(T* p, std::int64_t n) {
  return p == nullptr ? p : p + n;
}
template <class T>
const T* data_or_null(const Tensor& x) {
  return x.defined() ? data_of<T>(x) : nullptr;
}

template <class K>
Moments moments_of(const Tensor& x) {
  using T = typename K::Element;
  const Rows rows(x);
  const std::int64_t channels = rows.channels;
  Tensor scratch = Tensor::empty({rows.blocks, 2, channels}, DType::f64);
  auto* const parts = data_of<double>(scratch);
  const T* const from = data_of<T>(x);
  rows.for_each_block([&](std::int64_t b, std::int64_t first, std::int64_t n) {
    double* const part = parts + b * 2 * channels;
    K::statistics(from + first * channels, n, channels, part, part + channels);
  });
  Moments all(channels);
  for (std::int64_t b = 0; b < rows.blocks; ++b) {
    const double* const part = parts + b * 2 * channels;
    all.join(static_cast<double>(std::min(rows.block, rows.rows - b * rows.block)), part, part + channels);
  }
  return all;
}

Moments join_ranks(const Tensor& exchanged, std::int64_t channels) {
  const double* part = data_of<double>(exchanged);
  Moments all(channels);
  for (std::int64_t r = 0; r < exchanged.dim(0); ++r, part += batch_norm_exchange_numel(channels)) {
    all.join(part[2 * channels], part, part + channels);
  }
  return all;
}

template <class P>
void update_running(const Moments& moments, double momentum, Tensor& mean, Tensor& var) {
  P* const means = data_of<P>(mean);
  P* const vars = data_of<P>(var);
  const auto blend = [&](P& old, double value) {
    const double moved = (1 - momentum) * static_cast<double>(old) + momentum * value;
    if (std::abs(moved) <= static_cast<double>(std::numeric_limits<P>::max())) old = static_cast<P>(moved);
  };
  for (std::size_t c = 0; c < moments.mean.size(); ++c) {
    if (moments.count == 0 || !std::isfinite(moments.mean[c]) || !std::isfinite(moments.m2[c])) continue;
    blend(means[c], moments.mean[c]);
    if (moments.count > 1) blend(vars[c], moments.m2[c] / (moments.count - 1));
  }
}

// What both backward passes read, of the whole batch.
template <class K>
GradientBlock<typename K::Element, typename K::Channel> gradient_block(const BatchNormBackward& op,
                                                                       const typename K::Channel* mean) {
  using T = typename K::Element;
  HEDDLE_CHECK(!op.relu || op.mask.defined() || K::mask_nbytes(1) == 0 || op.x.numel() == 0,
               "batch_norm_backward: x is ", name_of(op.x.dtype()),
               ", for which the gradient behind the ReLU needs the mask of the forward pass");
  return {.x = data_of<T>(op.x),
          .dy = data_of<T>(op.dy),
          .y = op.relu ? data_or_null<T>(op.y) : nullptr,
          .mask = op.relu ? data_or_null<std::uint8_t>(op.mask) : nullptr,
          .mean = mean,
          .dz_mean = nullptr,
          .slope = nullptr,
          .factor = nullptr,
          .x_relu_mask = data_or_null<T>(op.x_relu_mask),
          .dx = nullptr,
          .daddend = nullptr,
          .add_dx = op.dx_mode == WriteMode::add,
          .add_daddend = op.daddend_mode == WriteMode::add};
}
// Its block b, which begins at element `at`.
template <class K, class Block>
Block part_of(Block block, const Rows& rows, std::int64_t b, std::int64_t at) {
  block.x = advance(block.x, at);
  block.dy = advance(block.dy, at);
  block.y = advance(block.y, at);
  block.mask = advance(block.mask, b * K::mask_nbytes(rows.block * rows.channels));
  block.x_relu_mask = advance(block.x_relu_mask, at);
  block.dx = advance(block.dx, at);
  block.daddend = advance(block.daddend, at);
  return block;
}

template <class K>
SumPair own_sums(const BatchNormBackward& op) {
  const Rows rows(op.x);
  const std::int64_t channels = rows.channels;
  Tensor scratch = Tensor::empty({rows.blocks, 2, channels}, DType::f64);
  auto* const parts = data_of<double>(scratch);
  const auto mean = channel_values<K>(op.mean);
  const auto whole = gradient_block<K>(op, mean.data());
  rows.for_each_block([&](std::int64_t b, std::int64_t first, std::int64_t n) {
    double* const part = parts + b * 2 * channels;
    K::sums(part_of<K>(whole, rows, b, first * channels), n, channels, part, part + channels);
  });
  SumPair sums{std::vector<double>(static_cast<std::size_t>(channels)),
               std::vector<double>(static_cast<std::size_t>(channels)), static_cast<double>(rows.rows)};
  for (std::int64_t b = 0; b < rows.blocks; ++b) {
    for (std::int64_t c = 0; c < channels; ++c) {
      sums.dz[static_cast<std::size_t>(c)] += parts[b * 2 * channels + c];
      sums.dz_xhat[static_cast<std::size_t>(c)] += parts[(b * 2 + 1) * channels + c];
    }
  }
  const auto* const inv_std = data_of<typename K::Channel>(op.inv_std);
  for (std::size_t c = 0; c < sums.dz_xhat.size(); ++c) sums.dz_xhat[c] *= static_cast<double>(inv_std[c]);
  return sums;
}

SumPair sums_of_ranks(const Tensor& exchanged, std::int64_t channels) {
  SumPair sums{std::vector<double>(static_cast<std::size_t>(channels)),
               std::vector<double>(static_cast<std::size_t>(channels))};
  const double* part = data_of<double>(exchanged);
  for (std::int64_t r = 0; r < exchanged.dim(0); ++r, part += batch_norm_exchange_numel(channels)) {
    for (std::int64_t c = 0; c < channels; ++c) {
      sums.dz[static_cast<std::size_t>(c)] += part[c];
      sums.dz_xhat[static_cast<std::size_t>(c)] += part[channels + c];
    }
    sums.count += part[2 * channels];
  }
  return sums;
}

template <class P>
void write_channels(const std::vector<double>& values, Tensor& to, WriteMode mode) {
  if (!to.defined()) return;
  P* const out = data_of<P>(to);
  for (std::size_t c = 0; c < values.size(); ++c) {
    out[c] = static_cast<P>(mode == WriteMode::add ? static_cast<double>(out[c]) + values[c] : values[c]);
  }
}

void write_exchange(const std::vector<double>& first, const std::vector<double>& second, double count, Tensor& out) {
  double* const to = data_of<double>(out);
  const std::size_t channels = first.size();
  std::copy(first.begin(), first.end(), to);
  std::copy(second.begin(), second.end(), to + channels);
  std::fill(to + 2 * channels, to + batch_norm_exchange_numel(static_cast<std::int64_t>(channels)), 0.0);
  to[2 * channels] = count;
}

// dx and daddend.
template <class K>
void write_data(const BatchNormBackward& op, const SumPair& sums) {
  using T = typename K::Element;
  using P = typename K::Channel;
  if (!op.dx.defined() && !op.daddend.defined()) return;
  const Rows rows(op.x);
  const P* const inv_std = data_of<P>(op.inv_std);
  const P* const scale = data_of<P>(op.scale);
  std::vector<P> factor(static_cast<std::size_t>(rows.channels)), dz_mean(factor.size()), slope(factor.size());
  for (std::size_t c = 0; c < factor.size(); ++c) {
    const auto inverse = static_cast<double>(inv_std[c]);
    factor[c] = static_cast<P>(static_cast<double>(scale[c]) * inverse);
    if (!op.batch_statistics || sums.count == 0) continue;
    dz_mean[c] = static_cast<P>(sums.dz[c] / sums.count);
    slope[c] = static_cast<P>(sums.dz_xhat[c] / sums.count * inverse);
  }
  factor = repeated<K>(std::move(factor));
  dz_mean = repeated<K>(std::move(dz_mean));
  slope = repeated<K>(std::move(slope));
  const auto mean = channel_values<K>(op.mean);
  auto whole = gradient_block<K>(op, mean.data());
  whole.factor = factor.data();
  whole.dz_mean = dz_mean.data();
  whole.slope = slope.data();
  Tensor dx = op.dx, daddend = op.daddend;
  if (dx.defined()) whole.dx = data_of<T>(dx);
  if (daddend.defined()) whole.daddend = data_of<T>(daddend);
  rows.for_each_block([&](std::int64_t b, std::int64_t first, std::int64_t n) {
    K::data(part_of<K>(whole, rows, b, first * rows.channels), n, rows.channels);
  });
}

// What normalises: the statistics of the batch, of all ranks' batches or the running ones. Channel by channel.
struct Statistics {
  std::vector<double> mean, var;
};

template <class K>
Statistics statistics_of(BatchNormForward& op) {
  using P = typename K::Channel;
  const std::int64_t channels = op.x.dim(-1);
  Statistics s;
  if (!op.batch_statistics) {
    const P* const mean = data_of<P>(std::as_const(op.running_mean));
    const P* const var = data_of<P>(std::as_const(op.running_var));
    s.mean.assign(mean, mean + channels);
    s.var.assign(var, var + channels);
    return s;
  }
  const Moments all = op.exchanged.defined() ? join_ranks(op.exchanged, channels) : moments_of<K>(op.x);
  s.mean = all.mean;
  for (const double m2 : all.m2) s.var.push_back(all.count == 0 ? 0 : m2 / all.count);
  if (op.running_mean.defined()) update_running<P>(all, op.momentum, op.running_mean, op.running_var);
  return s;
}

}  // namespace

Tensor CpuBackend::batch_norm_mask(const BatchNormForward& op) {
  Tensor mask;
  with_kernels(op.x.dtype(), [&]<class K>(K) {
    const std::int64_t nbytes = Rows(op.x).mask_nbytes<K>();
    if (nbytes > 0) mask = Tensor::empty({nbytes}, DType::u8);
  });
  return mask;
}

void CpuBackend::batch_norm_statistics(const Tensor& x, Tensor& exchange) {
  with_kernels(x.dtype(), [&]<class K>(K) {
    const Moments moments = moments_of<K>(x);
    write_exchange(moments.mean, moments.m2, moments.count, exchange);
  });
}

void CpuBackend::batch_norm_forward(BatchNormForward& op) {
  with_kernels(op.x.dtype(), [&]<class K>(K) {
    using T = typename K::Element;
    using P = typename K::Channel;
    const Rows rows(op.x);
    const Statistics statistics = statistics_of<K>(op);
    const P* const scale = data_of<P>(std::as_const(op.scale));
    const P* const shift = data_of<P>(std::as_const(op.shift));
    std::vector<P> center(statistics.mean.size()), factor(center.size()), offset(center.size());
    for (std::size_t c = 0; c < center.size(); ++c) {
      const double inv_std = 1 / std::sqrt(statistics.var[c] + op.eps), f = static_cast<double>(scale[c]) * inv_std;
      center[c] = static_cast<P>(statistics.mean[c]);
      factor[c] = static_cast<P>(f);
      // What the rounded center leaves of the mean.
      const double lost = statistics.mean[c] - static_cast<double>(center[c]);
      offset[c] = static_cast<P>(static_cast<double>(shift[c]) - (std::isfinite(lost) ? lost * f : 0));
      if (!op.mean.defined()) continue;
      data_of<P>(op.mean)[c] = center[c];
      data_of<P>(op.inv_std)[c] = static_cast<P>(inv_std);
    }
    center = repeated<K>(std::move(center));
    factor = repeated<K>(std::move(factor));
    offset = repeated<K>(std::move(offset));
    const T* const x = data_of<T>(std::as_const(op.x));
    const T* const addend = data_or_null<T>(op.addend);
    T* const y = data_of<T>(op.y);
    std::uint8_t* const mask = op.mask.defined() ? data_of<std::uint8_t>(op.mask) : nullptr;
    rows.for_each_block([&](std::int64_t b, std::int64_t first, std::int64_t n) {
      const std::int64_t at = first * rows.channels;
      K::normalise({x + at, advance(addend, at), center.data(), factor.data(), offset.data(), op.relu, y + at,
                    advance(mask, b * K::mask_nbytes(rows.block * rows.channels))},
                   n, rows.channels);
    });
  });
}

void CpuBackend::batch_norm_backward(BatchNormBackward& op) {
  with_kernels(op.x.dtype(), [&]<class K>(K) {
    using P = typename K::Channel;
    SumPair sums;
    if (op.batch_statistics || op.dscale.defined() || op.dshift.defined()) sums = own_sums<K>(op);
    write_channels<P>(sums.dz_xhat, op.dscale, op.dscale_mode);
    write_channels<P>(sums.dz, op.dshift, op.dshift_mode);
    write_data<K>(op, sums);
  });
}

void CpuBackend::batch_norm_backward_sums(BatchNormBackward& op, Tensor& exchange) {
  with_kernels(op.x.dtype(), [&]<class K>(K) {
    using P = typename K::Channel;
    const SumPair sums = own_sums<K>(op);
    write_channels<P>(sums.dz_xhat, op.dscale, op.dscale_mode);
    write_channels<P>(sums.dz, op.dshift, op.dshift_mode);
    write_exchange(sums.dz, sums.dz_xhat, sums.count, exchange);
  });
}

void CpuBackend::batch_norm_backward_data(BatchNormBackward& op, const Tensor& exchanged) {
  with_kernels(op.x.dtype(), [&]<class K>(K) { write_data<K>(op, sums_of_ranks(exchanged, op.x.dim(-1))); });
}

}  // namespace heddle::cpu
