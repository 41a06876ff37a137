// The sums of batch norm over all rows: statistics for the forward pass, sums for the backward pass. A thread sums in
// float what is small by construction (differences from its own first row, or from the mean), threads and blocks are
// joined in double in a fixed order: deterministic, and right for means far from 0.
#pragma once

#include "kernels/device/batch_norm_types.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// Rows and channels of the running thread.
template <int N>
struct NormTile {
  std::int64_t first_row, end_row;  // every blockDim.y-th
  std::int64_t channel;
  bool outside;  // no channel is left for it

  __device__ explicit NormTile(const NormShape& shape) {
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * shape.part, rest = shape.rows - begin;
    first_row = begin + threadIdx.y;
    end_row = begin + (rest < shape.part ? rest : shape.part);
    channel = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    outside = channel >= shape.channels;
  }
};
__device__ inline int norm_thread() { return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); }
// The channel that a thread of a block has where each has one; outside if it has none.
template <int N>
__device__ inline bool own_channel(const NormShape& shape, std::int64_t& channel) {
  const int columns = static_cast<int>(blockDim.x) * N;
  channel = static_cast<std::int64_t>(blockIdx.x) * columns + norm_thread();
  return norm_thread() < columns && channel < shape.channels;
}

// Statistics of some of the rows of a channel. Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise
// Algorithm for Computing Sample Variances", 1979.
struct Moments {
  double count, mean, m2;

  __device__ void join(const Moments& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const double total = count + other.count, delta = other.mean - mean, share = other.count / total;
    mean += delta * share;
    m2 += other.m2 + delta * delta * count * share;
    count = total;
  }
  __device__ ChannelPair pair() const { return {mean, m2}; }
  __device__ static Moments of(const ChannelPair& pair, double count) { return {count, pair.first, pair.second}; }
};
struct GradientSums {
  double dz, dz_xhat;

  __device__ void join(const GradientSums& other) {
    dz += other.dz;
    dz_xhat += other.dz_xhat;
  }
  __device__ ChannelPair pair() const { return {dz, dz_xhat}; }
  __device__ static GradientSums of(const ChannelPair& pair, double) { return {pair.first, pair.second}; }
};

// Joins values[0] to values[count - 1], `columns` apart from each other in shared memory, for each of the columns.
template <class V>
__device__ inline void join_rows(V* values, int count, int columns) {
  while (count > 1) {
    const int half = (count + 1) / 2;
    __syncthreads();
    for (int i = norm_thread(); i < (count - half) * columns; i += kNormThreads) {
      values[i].join(values[i + half * columns]);
    }
    count = half;
  }
  __syncthreads();
}

// Values in shared memory that join_column() needs: for half of the threads, and one a thread later.
template <int N>
inline constexpr int kJoinedValues = N < 2 ? kNormThreads : kNormThreads / 2 * N;

// Joins the values of all threads and blocks of a column. True in the block that has them, in all its threads:
// values[j] is of channel j of the column. blockDim.y is even.
template <class V, int N>
__device__ inline bool join_column(V (&own)[N], V* values, const NormShape& shape, const NormSplit& split) {
  const int thread = norm_thread(), columns = static_cast<int>(blockDim.x) * N;
  const int row = static_cast<int>(threadIdx.y), half = static_cast<int>(blockDim.y) / 2;
  V* const place = values + row % half * columns + static_cast<int>(threadIdx.x) * N;
  if (row >= half) {
    for (int k = 0; k < N; ++k) place[k] = own[k];
  }
  __syncthreads();
  if (row < half) {
    for (int k = 0; k < N; ++k) {
      own[k].join(place[k]);
      place[k] = own[k];
    }
  }
  join_rows(values, half, columns);
  if (gridDim.y == 1) return true;

  std::int64_t channel;
  if (own_channel<N>(shape, channel)) split.parts[blockIdx.y * shape.channels + channel] = values[thread].pair();
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (thread == 0) {
    last = atomicAdd(split.tickets + blockIdx.x, 1u) == gridDim.y - 1;
    if (last) split.tickets[blockIdx.x] = 0;
  }
  __syncthreads();
  if (!last) return false;
  __threadfence();
  // Groups of threads share the parts, one thread a channel.
  const int groups = kNormThreads / columns, group = thread / columns;
  channel = static_cast<std::int64_t>(blockIdx.x) * columns + thread % columns;
  V total = V::of({0, 0}, 0);
  if (channel < shape.channels && group < groups) {
    for (std::int64_t s = group; s < gridDim.y; s += groups) {
      const std::int64_t rest = shape.rows - s * shape.part;
      const auto part = load_pack<2>(reinterpret_cast<const double*>(split.parts + s * shape.channels + channel));
      total.join(V::of({part.at[0], part.at[1]}, static_cast<double>(rest < shape.part ? rest : shape.part)));
    }
  }
  if (group < groups) values[thread] = total;
  join_rows(values, groups, columns);
  return true;
}

// Sums of differences from the thread's first row: exact near it, and an outlier there is one of the rows.
template <class T, int N>
__device__ inline void own_moments(const T* x, const NormShape& shape, const NormTile<N>& tile, Moments (&own)[N]) {
  float base[N], sum[N], squares[N];
  for (int k = 0; k < N; ++k) base[k] = sum[k] = squares[k] = 0.0f;
  double count = 0;
  if (!tile.outside && tile.first_row < tile.end_row) {
    const auto first = load_pack<N>(x + tile.first_row * shape.channels + tile.channel);
    for (int k = 0; k < N; ++k) base[k] = widen(first.at[k]);
    std::int64_t r = tile.first_row + blockDim.y;
#pragma unroll 4
    for (; r < tile.end_row; r += blockDim.y) {
      const auto pack = load_pack<N>(x + r * shape.channels + tile.channel);
      for (int k = 0; k < N; ++k) {
        const float difference = widen(pack.at[k]) - base[k];
        sum[k] += difference;
        squares[k] += difference * difference;
      }
    }
    count = static_cast<double>((r - tile.first_row) / blockDim.y);
  }
  for (int k = 0; k < N; ++k) {
    const double total = static_cast<double>(sum[k]), shifted = count == 0 ? 0 : total / count;
    const double m2 = static_cast<double>(squares[k]) - total * shifted;
    // Not below 0 by rounding; NaN stays.
    own[k] = {count, static_cast<double>(base[k]) + shifted, m2 < 0 ? 0 : m2};
  }
}

// dz: dy where the ReLU was open.
template <class T, int N>
__device__ inline void open_gradient(const NormBackwardCall<T>& call, const NormShape& shape, std::int64_t at,
                                     float (&dz)[N]) {
  const auto dy = load_pack<N>(call.dy + at);
  for (int k = 0; k < N; ++k) dz[k] = widen(dy.at[k]);
  if (call.mask != nullptr && has_mask_bits(shape.channels)) {
    const unsigned bits = static_cast<unsigned>(call.mask[at / 8]) >> (at % 8);
    for (int k = 0; k < N; ++k) dz[k] = (bits >> k & 1u) != 0 ? dz[k] : 0.0f;
  } else if (call.mask != nullptr) {
    const auto mask = load_pack<N>(call.mask + at);
    for (int k = 0; k < N; ++k) dz[k] = mask.at[k] != 0 ? dz[k] : 0.0f;
  } else if (call.y != nullptr) {
    const auto y = load_pack<N>(call.y + at);
    for (int k = 0; k < N; ++k) dz[k] = widen(y.at[k]) > 0 ? dz[k] : 0.0f;
  }
}

// The sums of dz and of dz (x - mean).
template <class T, int N>
__device__ inline void own_gradient_sums(const NormBackwardCall<T>& call, const NormShape& shape,
                                         const NormTile<N>& tile, GradientSums (&own)[N]) {
  float mean[N], sum[N], product[N];
  for (int k = 0; k < N; ++k) sum[k] = product[k] = 0.0f;
  if (!tile.outside) {
    for (int k = 0; k < N; ++k) mean[k] = call.mean[tile.channel + k];
#pragma unroll 2
    for (std::int64_t r = tile.first_row; r < tile.end_row; r += blockDim.y) {
      const std::int64_t at = r * shape.channels + tile.channel;
      const auto x = load_pack<N>(call.x + at);
      float dz[N];
      open_gradient(call, shape, at, dz);
      for (int k = 0; k < N; ++k) {
        sum[k] += dz[k];
        product[k] += dz[k] * (widen(x.at[k]) - mean[k]);
      }
    }
  }
  for (int k = 0; k < N; ++k) own[k] = {static_cast<double>(sum[k]), static_cast<double>(product[k])};
}

// One thread a channel: what other ranks get, the count once.
__device__ inline void put_exchange(double* exchange, const NormShape& shape, std::int64_t channel,
                                    const ChannelPair& pair) {
  exchange[channel] = pair.first;
  exchange[shape.channels + channel] = pair.second;
  if (channel != 0) return;
  exchange[2 * shape.channels] = static_cast<double>(shape.rows);
  for (int i = 1; i < 4; ++i) exchange[2 * shape.channels + i] = 0.0;
}

// Ends the sums of a channel: from dz (x - mean) to dz xhat, and the gradients of scale and shift.
template <class T>
__device__ inline void put_gradient_sums(const NormBackwardCall<T>& call, std::int64_t channel, GradientSums& sums) {
  sums.dz_xhat *= static_cast<double>(call.inv_std[channel]);
  const auto put = [channel](float* to, bool add, double value) {
    if (to != nullptr) to[channel] = static_cast<float>(add ? static_cast<double>(to[channel]) + value : value);
  };
  put(call.dscale, call.add_to_dscale != 0, sums.dz_xhat);
  put(call.dshift, call.add_to_dshift != 0, sums.dz);
}

// Mean and squared differences of each channel. One thread: N channels in every blockDim.y-th row of a part. Blocks of
// 256; grid: (columns, parts). Bytes an element: one read. Shared memory: kJoinedValues moments.
template <class T, int N>
__global__ void __launch_bounds__(kNormThreads, 3)
    batch_norm_statistics_kernel(NormStatisticsCall<T> call, NormShape shape, NormSplit split) {
  __shared__ Moments values[kJoinedValues<N>];
  Moments own[N];
  own_moments(call.x, shape, NormTile<N>(shape), own);
  if (!join_column(own, values, shape, split)) return;
  std::int64_t channel;
  if (!own_channel<N>(shape, channel)) return;
  const ChannelPair pair = values[norm_thread()].pair();
  if (call.exchange != nullptr) return put_exchange(call.exchange, shape, channel, pair);
  call.joined[channel] = pair;
}

// The sums of the backward pass, and the gradients of scale and shift. Bytes an element: x, dy and what tells where the
// ReLU was open, read. The rest as above.
template <class T, int N>
__global__ void __launch_bounds__(kNormThreads, 3)
    batch_norm_sums_kernel(NormBackwardCall<T> call, NormShape shape, NormSplit split) {
  __shared__ GradientSums values[kJoinedValues<N>];
  GradientSums own[N];
  own_gradient_sums(call, shape, NormTile<N>(shape), own);
  if (!join_column(own, values, shape, split)) return;
  std::int64_t channel;
  if (!own_channel<N>(shape, channel)) return;
  GradientSums& sums = values[norm_thread()];
  put_gradient_sums(call, channel, sums);
  if (call.exchange != nullptr) put_exchange(call.exchange, shape, channel, sums.pair());
  if (call.joined != nullptr) call.joined[channel] = sums.pair();
}

}  // namespace heddle::cuda
