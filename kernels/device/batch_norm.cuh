// Batch norm, forward and backward, for any number of channels. Each kernel begins with one thread for each channel of
// its block, which works out in double what all rows of the channel share, and goes on with the rows. With `whole` a
// block has all rows of its channels and takes the sums itself: one kernel for what fits. Deterministic.
#pragma once

#include <cfloat>

#include "kernels/device/batch_norm_sums.cuh"

namespace heddle::cuda {

// y = (x - center) factor + offset. What center, a float, loses of the mean is in the offset.
struct NormCoefficients {
  float center[kNormChannels], factor[kNormChannels], offset[kNormChannels];
};
// dx = factor dz - (gain (x - center) + offset)
struct NormGradientCoefficients {
  float center[kNormChannels], factor[kNormChannels], gain[kNormChannels], offset[kNormChannels];
};

__device__ inline Moments moments_of_ranks(const NormSums& sums, const NormShape& shape, std::int64_t channel) {
  Moments total{0, 0, 0};
  for (std::int64_t r = 0; r < sums.ranks; ++r) {
    const double* const part = sums.exchanged + r * (2 * shape.channels + 4);
    total.join({part[2 * shape.channels], part[channel], part[shape.channels + channel]});
  }
  return total;
}

// running = (1 - momentum) running + momentum value, unless that is not finite.
__device__ inline void move_running(float* running, std::int64_t channel, double momentum, double value) {
  const auto moved = static_cast<float>((1 - momentum) * static_cast<double>(running[channel]) + momentum * value);
  if (fabsf(moved) <= FLT_MAX) running[channel] = moved;
}

// The coefficients of one channel. `writes`: in one block of the column, which keeps the statistics.
template <class T>
__device__ inline void set_coefficients(const NormForwardCall<T>& call, std::int64_t channel, const Moments& batch,
                                        bool writes, int slot, NormCoefficients& to) {
  double mean, variance;
  if (call.batch_statistics != 0) {
    mean = batch.mean;
    variance = batch.count == 0 ? 0 : batch.m2 / batch.count;
  } else {
    mean = static_cast<double>(call.running_mean[channel]);
    variance = static_cast<double>(call.running_var[channel]);
  }
  const double inv_std = rsqrt(variance + call.eps), factor = static_cast<double>(call.scale[channel]) * inv_std;
  const auto center = static_cast<float>(mean);
  const double lost = mean - static_cast<double>(center), shift = static_cast<double>(call.shift[channel]);
  to.center[slot] = center;
  to.factor[slot] = static_cast<float>(factor);
  to.offset[slot] = static_cast<float>(fabs(lost) <= DBL_MAX ? shift - lost * factor : shift);
  if (!writes) return;
  if (call.mean != nullptr) {
    call.mean[channel] = center;
    call.inv_std[channel] = static_cast<float>(inv_std);
  }
  // What is not finite in a channel leaves both running statistics as they are.
  if (call.batch_statistics == 0 || call.running_mean == nullptr || batch.count == 0) return;
  if (!(fabs(batch.mean) <= DBL_MAX) || !(batch.m2 <= DBL_MAX)) return;
  move_running(call.running_mean, channel, call.momentum, batch.mean);
  if (batch.count > 1) move_running(call.running_var, channel, call.momentum, batch.m2 / (batch.count - 1));
}

// Neighbouring threads that share a byte are in one row and in one warp.
template <class T, int N>
__device__ inline void put_mask(std::uint8_t* mask, const NormShape& shape, std::int64_t at, const Pack<T, N>& y) {
  if (!has_mask_bits(shape.channels)) {
    Pack<std::uint8_t, N> bytes;
    for (int k = 0; k < N; ++k) bytes.at[k] = widen(y.at[k]) > 0 ? 1 : 0;
    return store_pack<N>(mask + at, bytes);
  }
  static_assert(N <= 8);
  constexpr unsigned sharing = 8 / N;
  const unsigned lane = static_cast<unsigned>(norm_thread()) % 32, first = lane - lane % sharing;
  unsigned bits = 0;
  for (int k = 0; k < N; ++k) bits |= widen(y.at[k]) > 0 ? 1u << k : 0u;
  bits <<= (lane - first) * N;
  for (unsigned distance = 1; distance < sharing; distance *= 2) {
    bits |= __shfl_xor_sync(((1u << sharing) - 1) << first, bits, static_cast<int>(distance));
  }
  if (lane == first) mask[at / 8] = static_cast<std::uint8_t>(bits);
}

template <class T, int N>
__device__ inline void normalise_rows(const NormForwardCall<T>& call, const NormShape& shape, const NormTile<N>& tile,
                                      const NormCoefficients& coefficients) {
  if (tile.outside) return;
  float center[N], factor[N], offset[N];
  for (int k = 0; k < N; ++k) {
    const int c = static_cast<int>(threadIdx.x) * N + k;
    center[k] = coefficients.center[c];
    factor[k] = coefficients.factor[c];
    offset[k] = coefficients.offset[c];
  }
#pragma unroll 2
  for (std::int64_t r = tile.first_row; r < tile.end_row; r += blockDim.y) {
    const std::int64_t at = r * shape.channels + tile.channel;
    const auto x = load_pack<N>(call.x + at);
    float value[N];
    for (int k = 0; k < N; ++k) value[k] = (widen(x.at[k]) - center[k]) * factor[k] + offset[k];
    if (call.addend != nullptr) {
      const auto addend = load_pack<N>(call.addend + at);
      for (int k = 0; k < N; ++k) value[k] += widen(addend.at[k]);
    }
    Pack<T, N> y;
    for (int k = 0; k < N; ++k) y.at[k] = convert_to<T>(call.relu != 0 && value[k] < 0 ? 0.0f : value[k]);
    store_pack<N>(call.y + at, y);
    if (call.mask != nullptr) put_mask<T, N>(call.mask, shape, at, y);
  }
}

// y, the mask and the statistics. One thread: N channels in every blockDim.y-th row of a part. Blocks of 256; grid:
// (columns, parts), one part if kWhole. Bytes an element: x and addend read, y and mask written; x once more from a
// cache if kWhole. Shared memory: coefficients, and kJoinedValues moments if kWhole.
template <class T, int N, bool kWhole>
__global__ void __launch_bounds__(kNormThreads, 3) batch_norm_forward_kernel(NormForwardCall<T> call, NormShape shape) {
  __shared__ NormCoefficients coefficients;
  const int thread = norm_thread();
  std::int64_t channel;
  const bool has_channel = own_channel<N>(shape, channel);
  Moments batch{0, 0, 0};
  if constexpr (kWhole) {
    __shared__ Moments values[kJoinedValues<N>];
    Moments own[N];
    own_moments(call.x, shape, NormTile<N>(shape), own);
    join_column(own, values, shape, {});
    if (has_channel) batch = values[thread];
  } else if (has_channel && call.sums.joined != nullptr) {
    batch = Moments::of(call.sums.joined[channel], static_cast<double>(shape.rows));
  } else if (has_channel && call.sums.exchanged != nullptr) {
    batch = moments_of_ranks(call.sums, shape, channel);
  }
  if (has_channel) set_coefficients(call, channel, batch, blockIdx.y == 0, thread, coefficients);
  __syncthreads();
  normalise_rows(call, shape, NormTile<N>(shape), coefficients);
}

// dx = scale inv_std (dz - mean(dz) - xhat mean(dz xhat)); without batch statistics scale inv_std dz. Source: Ioffe and
// Szegedy, "Batch Normalization", 2015, section 3.
template <class T>
__device__ inline void set_gradient_coefficients(const NormBackwardCall<T>& call, std::int64_t channel,
                                                 const GradientSums& sums, double rows, int slot,
                                                 NormGradientCoefficients& to) {
  const auto inv_std = static_cast<double>(call.inv_std[channel]);
  const double factor = static_cast<double>(call.scale[channel]) * inv_std;
  const bool moving = call.batch_statistics != 0 && rows > 0;
  to.center[slot] = call.mean[channel];
  to.factor[slot] = static_cast<float>(factor);
  to.gain[slot] = moving ? static_cast<float>(factor * inv_std * sums.dz_xhat / rows) : 0.0f;
  to.offset[slot] = moving ? static_cast<float>(factor * sums.dz / rows) : 0.0f;
}

// to = values, or to += values.
template <class T, int N>
__device__ inline void put_rows(T* to, bool add, float (&values)[N]) {
  Pack<T, N> pack;
  if (add) {
    pack = load_pack<N>(static_cast<const T*>(to));
    for (int k = 0; k < N; ++k) values[k] += widen(pack.at[k]);
  }
  for (int k = 0; k < N; ++k) pack.at[k] = convert_to<T>(values[k]);
  store_pack<N>(to, pack);
}

template <class T, int N>
__device__ inline void gradient_rows(const NormBackwardCall<T>& call, const NormShape& shape, const NormTile<N>& tile,
                                     const NormGradientCoefficients& coefficients) {
  if (tile.outside) return;
  float center[N], factor[N], gain[N], offset[N];
  for (int k = 0; k < N; ++k) {
    const int c = static_cast<int>(threadIdx.x) * N + k;
    center[k] = coefficients.center[c];
    factor[k] = coefficients.factor[c];
    gain[k] = coefficients.gain[c];
    offset[k] = coefficients.offset[c];
  }
#pragma unroll 1
  for (std::int64_t r = tile.first_row; r < tile.end_row; r += blockDim.y) {
    const std::int64_t at = r * shape.channels + tile.channel;
    float dz[N];
    open_gradient(call, shape, at, dz);
    if (call.dx != nullptr) {
      float dx[N];
      if (call.batch_statistics != 0) {
        const auto x = load_pack<N>(call.x + at);
        for (int k = 0; k < N; ++k) {
          dx[k] = factor[k] * dz[k] - (gain[k] * (widen(x.at[k]) - center[k]) + offset[k]);
        }
      } else {
        for (int k = 0; k < N; ++k) dx[k] = factor[k] * dz[k];
      }
      if (call.x_relu_mask != nullptr) {
        const auto mask = load_pack<N>(call.x_relu_mask + at);
        for (int k = 0; k < N; ++k) dx[k] = widen(mask.at[k]) > 0 ? dx[k] : 0.0f;
      }
      put_rows<T, N>(call.dx + at, call.add_to_dx != 0, dx);
    }
    if (call.daddend != nullptr) put_rows<T, N>(call.daddend + at, call.add_to_daddend != 0, dz);
  }
}

// dx and daddend; if kWhole dscale and dshift too. Bytes an element: dy, x with batch statistics, what tells where the
// ReLUs were open, and what is added to, read; dx and daddend written. The rest as batch_norm_forward_kernel.
template <class T, int N, bool kWhole>
__global__ void __launch_bounds__(kNormThreads, 3)
    batch_norm_backward_kernel(NormBackwardCall<T> call, NormShape shape) {
  __shared__ NormGradientCoefficients coefficients;
  const NormTile<N> tile(shape);
  const int thread = norm_thread();
  std::int64_t channel;
  const bool has_channel = own_channel<N>(shape, channel);
  GradientSums sums{0, 0};
  auto rows = static_cast<double>(shape.rows);
  if constexpr (kWhole) {
    __shared__ GradientSums values[kJoinedValues<N>];
    GradientSums own[N];
    own_gradient_sums(call, shape, tile, own);
    join_column(own, values, shape, {});
    if (has_channel) {
      sums = values[thread];
      put_gradient_sums(call, channel, sums);
    }
  } else if (has_channel && call.sums.joined != nullptr) {
    sums = GradientSums::of(call.sums.joined[channel], rows);
  } else if (has_channel && call.sums.exchanged != nullptr) {
    rows = 0;
    // Unrolled further, it would be most of the kernel's code.
#pragma unroll 4
    for (std::int64_t r = 0; r < call.sums.ranks; ++r) {
      const double* const part = call.sums.exchanged + r * (2 * shape.channels + 4);
      sums.join({part[channel], part[shape.channels + channel]});
      rows += part[2 * shape.channels];
    }
  }
  if (has_channel) set_gradient_coefficients(call, channel, sums, rows, thread, coefficients);
  __syncthreads();
  gradient_rows(call, shape, tile, coefficients);
}

}  // namespace heddle::cuda
