// Batch norm. Used through CpuBackend. Each pass runs over blocks of rows whose size follows from the shape alone, and
// the blocks' sums are joined in their order in double, so results do not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/core/parallel.h"
#include "engine/cpu/batch_norm_blocks.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

constexpr std::int64_t kBlockNumel = 8192;  // elements of a block: they stay in the first-level cache

struct Rows {
  std::int64_t channels, rows, block, blocks;

  explicit Rows(const Tensor& x)
      : channels(x.dim(-1)),
        rows(channels == 0 ? 0 : x.numel() / channels),
        block(std::max<std::int64_t>(1, kBlockNumel / std::max<std::int64_t>(1, channels))),
        blocks((rows + block - 1) / block) {}

  // Calls body(b, first row, number of rows) for every block.
  template <class Body>
  void for_each_block(const Body& body) const {
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, block * channels));
    parallel_for(blocks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) body(b, b * block, std::min(block, rows - b * block));
    });
  }
};

// Number of rows, mean and sum of squared differences of one channel, of some of the rows.
struct Moments {
  double count = 0, mean = 0, m2 = 0;

  // Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979.
  void join(const Moments& other) {
    if (other.count == 0) return;
    const double total = count + other.count, delta = other.mean - mean;
    mean += delta * (other.count / total);
    m2 += other.m2 + delta * delta * (count * other.count / total);
    count = total;
  }
};

// Two sums of each channel: of all blocks, or of all ranks.
struct SumPair {
  std::vector<double> dz, dz_xhat;
  double count = 0;
};

template <class T>
using ChannelType = typename PlainBatchNorm<T>::P;

template <class T>
std::vector<Moments> moments_of(const Tensor& x) {
  const Rows rows(x);
  const std::int64_t channels = rows.channels;
  Tensor scratch = Tensor::empty({rows.blocks, 2, channels}, DType::f64);
  auto* const parts = data_of<double>(scratch);
  const T* const from = data_of<T>(x);
  rows.for_each_block([&](std::int64_t b, std::int64_t first, std::int64_t n) {
    double* const part = parts + b * 2 * channels;
    PlainBatchNorm<T>::statistics(from + first * channels, n, channels, part, part + channels);
  });
  std::vector<Moments> all(static_cast<std::size_t>(channels));
  for (std::int64_t b = 0; b < rows.blocks; ++b) {
    const auto n = static_cast<double>(std::min(rows.block, rows.rows - b * rows.block));
    const double* const part = parts + b * 2 * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      all[static_cast<std::size_t>(c)].join({n, part[c], part[channels + c]});
    }
  }
  return all;
}

template <class P>
std::vector<Moments> join_ranks(const Tensor& exchanged, std::int64_t channels) {
  const P* part = data_of<P>(exchanged);
  std::vector<Moments> all(static_cast<std::size_t>(channels));
  for (std::int64_t r = 0; r < exchanged.dim(0); ++r, part += batch_norm_exchange_numel(channels)) {
    for (std::int64_t c = 0; c < channels; ++c) {
      all[static_cast<std::size_t>(c)].join({static_cast<double>(part[2 * channels]), static_cast<double>(part[c]),
                                             static_cast<double>(part[channels + c])});
    }
  }
  return all;
}

template <class P>
void update_running(const std::vector<Moments>& moments, double momentum, Tensor& mean, Tensor& var) {
  P* const means = data_of<P>(mean);
  P* const vars = data_of<P>(var);
  for (std::size_t c = 0; c < moments.size(); ++c) {
    const Moments& m = moments[c];
    const auto blend = [&](P& old, double value) {
      old = static_cast<P>((1 - momentum) * static_cast<double>(old) + momentum * value);
    };
    if (m.count == 0 || !std::isfinite(m.mean) || !std::isfinite(m.m2)) continue;
    blend(means[c], m.mean);
    if (m.count > 1) blend(vars[c], m.m2 / (m.count - 1));
  }
}

// Where the ReLU was open.
template <class T>
const T* opening(const BatchNormBackward& op) {
  return op.relu ? data_of<T>(op.y) : nullptr;
}

template <class T>
SumPair own_sums(const BatchNormBackward& op) {
  using P = ChannelType<T>;
  const Rows rows(op.x);
  const std::int64_t channels = rows.channels;
  Tensor scratch = Tensor::empty({rows.blocks, 2, channels}, DType::f64);
  auto* const parts = data_of<double>(scratch);
  const T* const x = data_of<T>(op.x);
  const T* const dy = data_of<T>(op.dy);
  const T* const y = opening<T>(op);
  const P* const mean = data_of<P>(op.mean);
  const P* const inv_std = data_of<P>(op.inv_std);
  rows.for_each_block([&](std::int64_t b, std::int64_t first, std::int64_t n) {
    double* const part = parts + b * 2 * channels;
    const std::int64_t at = first * channels;
    PlainBatchNorm<T>::sums(x + at, dy + at, y == nullptr ? y : y + at, n, channels, mean, inv_std, part,
                            part + channels);
  });
  SumPair sums{std::vector<double>(static_cast<std::size_t>(channels)),
               std::vector<double>(static_cast<std::size_t>(channels)), static_cast<double>(rows.rows)};
  for (std::int64_t b = 0; b < rows.blocks; ++b) {
    for (std::int64_t c = 0; c < channels; ++c) {
      sums.dz[static_cast<std::size_t>(c)] += parts[b * 2 * channels + c];
      sums.dz_xhat[static_cast<std::size_t>(c)] += parts[(b * 2 + 1) * channels + c];
    }
  }
  return sums;
}

template <class P>
SumPair sums_of_ranks(const Tensor& exchanged, std::int64_t channels) {
  SumPair sums{std::vector<double>(static_cast<std::size_t>(channels)),
               std::vector<double>(static_cast<std::size_t>(channels))};
  const P* part = data_of<P>(exchanged);
  for (std::int64_t r = 0; r < exchanged.dim(0); ++r, part += batch_norm_exchange_numel(channels)) {
    for (std::int64_t c = 0; c < channels; ++c) {
      sums.dz[static_cast<std::size_t>(c)] += static_cast<double>(part[c]);
      sums.dz_xhat[static_cast<std::size_t>(c)] += static_cast<double>(part[channels + c]);
    }
    sums.count += static_cast<double>(part[2 * channels]);
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

template <class P>
void write_exchange(const std::vector<double>& first, const std::vector<double>& second, double count, Tensor& out) {
  P* const to = data_of<P>(out);
  const std::size_t channels = first.size();
  for (std::size_t c = 0; c < channels; ++c) {
    to[c] = static_cast<P>(first[c]);
    to[channels + c] = static_cast<P>(second[c]);
  }
  std::fill(to + 2 * channels, to + batch_norm_exchange_numel(static_cast<std::int64_t>(channels)), P(0));
  to[2 * channels] = static_cast<P>(count);
}

// dx and daddend.
template <class T>
void write_data(const BatchNormBackward& op, const SumPair& sums) {
  using P = ChannelType<T>;
  if (!op.dx.defined() && !op.daddend.defined()) return;
  const Rows rows(op.x);
  const std::int64_t channels = rows.channels;
  std::vector<P> factor(static_cast<std::size_t>(channels)), dz_mean(factor.size()), slope(factor.size());
  for (std::size_t c = 0; c < factor.size(); ++c) {
    const auto inv_std = static_cast<double>(data_of<P>(op.inv_std)[c]);
    factor[c] = static_cast<P>(static_cast<double>(data_of<P>(op.scale)[c]) * inv_std);
    if (!op.batch_statistics || sums.count == 0) continue;
    dz_mean[c] = static_cast<P>(sums.dz[c] / sums.count);
    slope[c] = static_cast<P>(sums.dz_xhat[c] / sums.count * inv_std);
  }
  Tensor dx = op.dx, daddend = op.daddend;
  const typename PlainBatchNorm<T>::DataBlock whole{data_of<T>(op.x),
                                                    data_of<T>(op.dy),
                                                    opening<T>(op),
                                                    op.x_relu_mask.defined() ? data_of<T>(op.x_relu_mask) : nullptr,
                                                    dx.defined() ? data_of<T>(dx) : nullptr,
                                                    daddend.defined() ? data_of<T>(daddend) : nullptr,
                                                    op.dx_mode == WriteMode::add,
                                                    op.daddend_mode == WriteMode::add};
  const P* const mean = data_of<P>(op.mean);
  rows.for_each_block([&](std::int64_t, std::int64_t first, std::int64_t n) {
    const auto from = [at = first * channels](auto* p) { return p == nullptr ? p : p + at; };
    auto block = whole;
    block.x = from(whole.x);
    block.dy = from(whole.dy);
    block.y = from(whole.y);
    block.x_relu_mask = from(whole.x_relu_mask);
    block.dx = from(whole.dx);
    block.daddend = from(whole.daddend);
    PlainBatchNorm<T>::data(block, n, channels, mean, factor.data(), dz_mean.data(), slope.data());
  });
}

}  // namespace

Tensor CpuBackend::batch_norm_mask(const BatchNormForward&) { return {}; }

void CpuBackend::batch_norm_statistics(const Tensor& x, Tensor& exchange) {
  visit_floats("batch_norm", x.dtype(), [&]<class T>(TypeTag<T>) {
    const std::vector<Moments> moments = moments_of<T>(x);
    std::vector<double> mean(moments.size()), m2(moments.size());
    for (std::size_t c = 0; c < moments.size(); ++c) {
      mean[c] = moments[c].mean;
      m2[c] = moments[c].m2;
    }
    write_exchange<ChannelType<T>>(mean, m2, static_cast<double>(Rows(x).rows), exchange);
  });
}

void CpuBackend::batch_norm_forward(BatchNormForward& op) {
  visit_floats("batch_norm", op.x.dtype(), [&]<class T>(TypeTag<T>) {
    using P = ChannelType<T>;
    const Rows rows(op.x);
    const std::int64_t channels = rows.channels;
    const P* const scale = data_of<P>(std::as_const(op.scale));
    const P* const shift = data_of<P>(std::as_const(op.shift));
    std::vector<P> center(static_cast<std::size_t>(channels)), factor(center.size()), offset(center.size());
    const auto set_channel = [&](std::size_t c, double mean, double var) {
      const double inv_std = 1 / std::sqrt(var + op.eps), f = static_cast<double>(scale[c]) * inv_std;
      center[c] = static_cast<P>(mean);
      factor[c] = static_cast<P>(f);
      const double lost = mean - static_cast<double>(center[c]);
      offset[c] = static_cast<P>(static_cast<double>(shift[c]) - (std::isfinite(lost) ? lost * f : 0));
      if (!op.mean.defined()) return;
      data_of<P>(op.mean)[c] = center[c];
      data_of<P>(op.inv_std)[c] = static_cast<P>(inv_std);
    };
    if (op.batch_statistics) {
      const std::vector<Moments> moments =
          op.exchanged.defined() ? join_ranks<P>(op.exchanged, channels) : moments_of<T>(op.x);
      for (std::size_t c = 0; c < moments.size(); ++c) {
        set_channel(c, moments[c].mean, moments[c].count == 0 ? 0 : moments[c].m2 / moments[c].count);
      }
      if (op.running_mean.defined()) update_running<P>(moments, op.momentum, op.running_mean, op.running_var);
    } else {
      const P* const mean = data_of<P>(std::as_const(op.running_mean));
      const P* const var = data_of<P>(std::as_const(op.running_var));
      for (std::size_t c = 0; c < center.size(); ++c) {
        set_channel(c, static_cast<double>(mean[c]), static_cast<double>(var[c]));
      }
    }
    const NormCoefficients<P> coefficients{center.data(), factor.data(), offset.data()};
    const T* const x = data_of<T>(std::as_const(op.x));
    const T* const addend = op.addend.defined() ? data_of<T>(std::as_const(op.addend)) : nullptr;
    T* const y = data_of<T>(op.y);
    rows.for_each_block([&](std::int64_t, std::int64_t first, std::int64_t n) {
      const std::int64_t at = first * channels;
      PlainBatchNorm<T>::normalise(x + at, addend == nullptr ? addend : addend + at, n, channels, coefficients, op.relu,
                                   y + at);
    });
  });
}

void CpuBackend::batch_norm_backward(BatchNormBackward& op) {
  visit_floats("batch_norm", op.x.dtype(), [&]<class T>(TypeTag<T>) {
    using P = ChannelType<T>;
    SumPair sums;
    if (op.batch_statistics || op.dscale.defined() || op.dshift.defined()) sums = own_sums<T>(op);
    write_channels<P>(sums.dz_xhat, op.dscale, op.dscale_mode);
    write_channels<P>(sums.dz, op.dshift, op.dshift_mode);
    write_data<T>(op, sums);
  });
}

void CpuBackend::batch_norm_backward_sums(BatchNormBackward& op, Tensor& exchange) {
  visit_floats("batch_norm", op.x.dtype(), [&]<class T>(TypeTag<T>) {
    using P = ChannelType<T>;
    const SumPair sums = own_sums<T>(op);
    write_channels<P>(sums.dz_xhat, op.dscale, op.dscale_mode);
    write_channels<P>(sums.dz, op.dshift, op.dshift_mode);
    write_exchange<P>(sums.dz, sums.dz_xhat, sums.count, exchange);
  });
}

void CpuBackend::batch_norm_backward_data(BatchNormBackward& op, const Tensor& exchanged) {
  visit_floats("batch_norm", op.x.dtype(),
               [&]<class T>(TypeTag<T>) { write_data<T>(op, sums_of_ranks<ChannelType<T>>(exchanged, op.x.dim(-1))); });
}

}  // namespace heddle::cpu
