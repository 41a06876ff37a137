// Convolutions with few channels, straight from the definition: a block keeps a part of an image and the weights in
// shared memory. Forward and data gradient are one kernel: the data gradient is a convolution of the output gradient,
// spread by the stride, with the kernel turned round. The weight gradient takes the bias gradient along.
#pragma once

#include "conv2d_geometry.cuh"
#include "dynamic_shared.cuh"
#include "vector4.cuh"

namespace heddle::cuda::device {

// Results of one position that a thread sums.
constexpr int kDirectChannels = 8;

// result[n,h,w,o] = sum over (kh,kw,c) of source[n, (h * step_h - pad_h + kh * dilation_h) / spread_h, same for w, c] *
// weight(kh,kw,c,o), where the division leaves no rest; outside the source is 0.
struct DirectConv {
  int batch, source_h, source_w, source_c, result_h, result_w, result_c, kernel_h, kernel_w;
  int step_h, step_w, spread_h, spread_w, pad_h, pad_w, dilation_h, dilation_w;
  // A block computes band_rows rows of one image, or (bands 1) all rows of `images` images.
  int band_rows, bands, images;
  int tile_rows, tile_pitch;  // of a band's part of the source in shared memory; the pitch is a multiple of four
  int wide_source, wide_result;
};
template <class T>
struct DirectConvPointers {
  const T* source;
  const T* w;
  T* result;
  const T* bias;       // forward, or null
  const T* relu_mask;  // gradient, or null
  int relu, add;
};

// Rows [row0, row0 + rows) of the spread, padded source of one image, as floats. All threads of the block take part.
template <class T>
__device__ inline void load_source_rows(const T* image, const DirectConv& d, int row0, int rows, float* tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int row_elements = d.source_w * d.source_c, left = d.pad_w * d.source_c;
  for (int row = warp; row < rows; row += warps) {
    const int spread_row = row0 + row;
    const bool inside = spread_row >= 0 && spread_row % d.spread_h == 0 && spread_row / d.spread_h < d.source_h;
    const T* const from = inside ? image + static_cast<long long>(spread_row / d.spread_h) * row_elements : image;
    for (int i = lane * 4; i < d.tile_pitch; i += 128) {
      Four four = {};
      if (inside && d.wide_source != 0 && i >= left && i + 4 <= left + row_elements) {
        four = load_four(from + (i - left));
      } else if (inside) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int spread_column = (i + j) / d.source_c - d.pad_w, c = (i + j) % d.source_c;
          if (spread_column < 0 || spread_column % d.spread_w != 0) continue;
          const int column = spread_column / d.spread_w;
          if (column < d.source_w) four.v[j] = widen(from[column * d.source_c + c]);
        }
      }
      store_four(tile + row * d.tile_pitch + i, four);
    }
  }
}

// The weights of kDirectChannels result channels from first on: tile[(kh * kernel_w + kw) * source_c + c][channel].
template <bool kGradient, class T>
__device__ inline void load_direct_weights(const T* w, const DirectConv& d, int first, float* tile) {
  const int taps = d.kernel_h * d.kernel_w, depth = taps * d.source_c;
  for (int i = static_cast<int>(threadIdx.x); i < depth * kDirectChannels; i += static_cast<int>(blockDim.x)) {
    // Neighbouring threads read neighbouring weights.
    int k, channel;
    long long place;
    if (kGradient) {  // w (source_c,kernel_h,kernel_w,result_c), turned round
      channel = i % kDirectChannels;
      k = i / kDirectChannels;
      const int tap = k / d.source_c, c = k % d.source_c;
      place = (static_cast<long long>(c) * taps + (taps - 1 - tap)) * d.result_c + first + channel;
    } else {  // w (result_c,kernel_h,kernel_w,source_c)
      k = i % depth;
      channel = i / depth;
      place = static_cast<long long>(first + channel) * depth + k;
    }
    tile[k * kDirectChannels + channel] = first + channel < d.result_c ? widen(w[place]) : 0.0f;
  }
}

// Writes `count` (up to four) sums of neighbouring channels from `channel` on, after bias and ReLU, or the mask.
template <class T>
__device__ inline void write_direct(const DirectConvPointers<T>& p, Four sums, int channel, long long place, int count,
                                    bool wide) {
  if (p.bias != nullptr) {
    const Four bias = load_up_to_four(p.bias + channel, count, wide);
#pragma unroll
    for (int j = 0; j < 4; ++j) sums.v[j] += bias.v[j];
  }
  if (p.relu != 0) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums.v[j] = sums.v[j] < 0 ? 0.0f : sums.v[j];
  }
  if (p.relu_mask != nullptr) {
    const Four mask = load_up_to_four(p.relu_mask + place, count, wide);
#pragma unroll
    for (int j = 0; j < 4; ++j) sums.v[j] = mask.v[j] > 0 ? sums.v[j] : 0.0f;
  }
  if (p.add != 0) {
    const Four old = load_up_to_four(p.result + place, count, wide);
#pragma unroll
    for (int j = 0; j < 4; ++j) sums.v[j] += old.v[j];
  }
  store_up_to_four(p.result + place, sums, count, wide);
}

// A thread sums kDirectChannels channels of kPositions positions at a time. Grid: bands and images, groups of channels.
// Block: a multiple of 32 threads. Shared memory: weights, then the band of the source, reused for the results. Reads
// the source once per group of channels. Deterministic.
template <bool kGradient, int kPositions, class T>
__global__ void __launch_bounds__(256, 2) conv_direct_kernel(DirectConv d, DirectConvPointers<T> p) {
  HEDDLE_DYNAMIC_SHARED(float, shared);
  const int depth = d.kernel_h * d.kernel_w * d.source_c;
  float* const weights = shared;
  float* const tile = shared + depth * kDirectChannels;
  const int threads = static_cast<int>(blockDim.x), t = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.x), first = static_cast<int>(blockIdx.y) * kDirectChannels;
  const int image0 = block / d.bands * d.images, row0 = block % d.bands * d.band_rows;
  const int rows = row0 + d.band_rows <= d.result_h ? d.band_rows : d.result_h - row0;
  const int images = image0 + d.images <= d.batch ? d.images : d.batch - image0;
  const long long source_image = static_cast<long long>(d.source_h) * d.source_w * d.source_c;

  load_direct_weights<kGradient>(p.w, d, first, weights);
  for (int i = 0; i < images; ++i) {
    load_source_rows(p.source + (image0 + i) * source_image, d, row0 * d.step_h - d.pad_h, d.tile_rows,
                     tile + i * d.tile_rows * d.tile_pitch);
  }
  __syncthreads();

  const int positions = images * rows * d.result_w;
  const long long first_position = (static_cast<long long>(image0) * d.result_h + row0) * d.result_w;
  const int channels = first + kDirectChannels <= d.result_c ? kDirectChannels : d.result_c - first;
  // Elements of a row of the kernel that lie next to each other.
  const int run = d.dilation_w == 1 ? d.kernel_w * d.source_c : d.source_c;
  const int runs = d.dilation_w == 1 ? 1 : d.kernel_w;
  for (int begin = 0; begin < positions; begin += threads * kPositions) {
    float sums[kPositions][kDirectChannels] = {};
    int base[kPositions];
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      // Threads without a position sum the last one again, and do not write it.
      const int wanted = begin + i * threads + t, position = wanted < positions ? wanted : positions - 1;
      const int w = position % d.result_w, row = position / d.result_w, image = row / rows, h = row % rows;
      base[i] = (image * d.tile_rows + h * d.step_h) * d.tile_pitch + w * d.step_w * d.source_c;
    }
    const float* weight = weights;
    for (int kh = 0; kh < d.kernel_h; ++kh) {
      for (int r = 0; r < runs; ++r) {
        const float* const from = tile + kh * d.dilation_h * d.tile_pitch + r * d.dilation_w * d.source_c;
#pragma unroll 5
        for (int k = 0; k < run; ++k, weight += kDirectChannels) {
          const Four low = load_four(weight), high = load_four(weight + 4);
#pragma unroll
          for (int i = 0; i < kPositions; ++i) {
            const float value = from[base[i] + k];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              sums[i][j] += value * low.v[j];
              sums[i][4 + j] += value * high.v[j];
            }
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      const int position = begin + i * threads + t;
      if (position >= positions) continue;
      const long long place = (first_position + position) * d.result_c + first;
#pragma unroll
      for (int j = 0; j < kDirectChannels; j += 4) {
        if (j >= channels) continue;
        write_direct(p, {{sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]}}, first + j, place + j,
                     channels - j, d.wide_result != 0);
      }
    }
  }
}

// Weight gradient: column (kh,kw,c) of row o is the sum over positions of dy[position,o] * x[position sees (kh,kw),c];
// a last column of ones gives the bias gradient.
struct DirectWeightGradient {
  DirectConv d;  // of the forward pass: source x, result dy; images is 1
  int columns;   // with the bias gradient's if there is one
  int column_threads, slices, splits;
  int has_bias;
};
template <class T>
struct DirectWeightGradientPointers {
  const T* x;
  const T* dy;
  T* dw;
  T* db;
  int add;
  float* partials;    // (channel and column group, split, column, channel)
  unsigned* tickets;  // one for each channel and column group
};

// A thread sums one column of kDirectChannels rows over every slices-th position of the block's images. Grid: splits of
// the images, groups of columns, groups of channels; block: 256 threads, column_threads * slices of them sum. Shared
// memory: a band of dy, a band of x; reused for the slices' sums. Deterministic: slices and splits are added in order.
template <class T>
__global__ void __launch_bounds__(256, 3)
    conv_direct_weight_kernel(DirectWeightGradient s, DirectWeightGradientPointers<T> p) {
  HEDDLE_DYNAMIC_SHARED(float, shared);
  const DirectConv& d = s.d;
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int column_in_block = t % s.column_threads, slice = t / s.column_threads;
  const int column = static_cast<int>(blockIdx.y) * s.column_threads + column_in_block;
  const int first = static_cast<int>(blockIdx.z) * kDirectChannels;
  const bool is_bias = s.has_bias != 0 && column == s.columns - 1;
  const bool sums_any = slice < s.slices && column < s.columns;
  float* const gradients = shared;  // (positions of a band, kDirectChannels)
  float* const tile = shared + d.band_rows * d.result_w * kDirectChannels;
  const int c = column % d.source_c, tap = column / d.source_c;
  const int seen =
      is_bias ? 0 : tap / d.kernel_w * d.dilation_h * d.tile_pitch + tap % d.kernel_w * d.dilation_w * d.source_c + c;

  float sums[kDirectChannels] = {};
  for (int n = static_cast<int>(blockIdx.x); n < d.batch; n += s.splits) {
    const T* const image = p.x + static_cast<long long>(n) * d.source_h * d.source_w * d.source_c;
    for (int row0 = 0; row0 < d.result_h; row0 += d.band_rows) {
      const int rows = row0 + d.band_rows <= d.result_h ? d.band_rows : d.result_h - row0;
      const T* const dy = p.dy + (static_cast<long long>(n) * d.result_h + row0) * d.result_w * d.result_c + first;
      load_source_rows(image, d, row0 * d.step_h - d.pad_h, d.tile_rows, tile);
      for (int i = t; i < rows * d.result_w * 2; i += threads) {
        const int position = i / 2, half = i % 2 * 4;
        store_four(gradients + position * kDirectChannels + half,
                   load_up_to_four(dy + static_cast<long long>(position) * d.result_c + half, d.result_c - first - half,
                                   d.wide_result != 0));
      }
      __syncthreads();
      if (sums_any) {
        for (int row = 0; row < rows; ++row) {
          const float* const from = tile + row * d.step_h * d.tile_pitch + seen;
          const float* const gradient_row = gradients + row * d.result_w * kDirectChannels;
          for (int w = slice; w < d.result_w; w += s.slices) {
            const float value = is_bias ? 1.0f : from[w * d.step_w * d.source_c];
            const Four low = load_four(gradient_row + w * kDirectChannels),
                       high = load_four(gradient_row + w * kDirectChannels + 4);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              sums[j] += value * low.v[j];
              sums[4 + j] += value * high.v[j];
            }
          }
        }
      }
      __syncthreads();
    }
  }

  // The slices of the block, then the splits: each time every slice's threads leave their sums, and those of slice 0
  // add.
  float* const slice_sums = shared;  // (slices, column_threads, kDirectChannels)
  const auto join_slices = [&] {
    if (slice < s.slices) {
      float* const own = slice_sums + (slice * s.column_threads + column_in_block) * kDirectChannels;
      store_four(own, {{sums[0], sums[1], sums[2], sums[3]}});
      store_four(own + 4, {{sums[4], sums[5], sums[6], sums[7]}});
    }
    __syncthreads();
    if (slice == 0) {
      for (int other = 1; other < s.slices; ++other) {
        const float* const part = slice_sums + (other * s.column_threads + column_in_block) * kDirectChannels;
        const Four low = load_four(part), high = load_four(part + 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[j] += low.v[j];
          sums[4 + j] += high.v[j];
        }
      }
    }
    __syncthreads();
  };
  join_slices();

  if (s.splits > 1) {
    const int group = static_cast<int>(blockIdx.z * gridDim.y + blockIdx.y);
    const int split_floats = s.column_threads * kDirectChannels;
    float* const parts = p.partials + static_cast<long long>(group) * s.splits * split_floats;
    if (slice == 0) {
      float* const own = parts + static_cast<long long>(blockIdx.x) * split_floats + column_in_block * kDirectChannels;
      store_four(own, {{sums[0], sums[1], sums[2], sums[3]}});
      store_four(own + 4, {{sums[4], sums[5], sums[6], sums[7]}});
    }
    __threadfence();
    __syncthreads();
    // In the block's own memory, which join_slices() has left: a variable beside it would count against the limit that
    // the bands are cut for.
    if (t == 0) {
      const bool last = atomicAdd(&p.tickets[group], 1u) == static_cast<unsigned>(s.splits - 1);
      if (last) p.tickets[group] = 0;
      shared[0] = last ? 1.0f : 0.0f;
    }
    __syncthreads();
    const bool is_last = shared[0] != 0;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
#pragma unroll
    for (int j = 0; j < kDirectChannels; ++j) sums[j] = 0;
    if (slice < s.slices) {
#pragma unroll 4
      for (int split = slice; split < s.splits; split += s.slices) {
        const float* const part =
            parts + static_cast<long long>(split) * split_floats + column_in_block * kDirectChannels;
        const Four low = load_four(part), high = load_four(part + 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[j] += low.v[j];
          sums[4 + j] += high.v[j];
        }
      }
    }
    join_slices();
  }

  if (slice != 0 || column >= s.columns) return;
  const int weights = s.columns - s.has_bias;
#pragma unroll
  for (int j = 0; j < kDirectChannels; ++j) {
    if (first + j >= d.result_c) continue;
    T& place = is_bias ? p.db[first + j] : p.dw[static_cast<long long>(first + j) * weights + column];
    place = convert_to<T>(p.add != 0 ? widen(place) + sums[j] : sums[j]);
  }
}

}  // namespace heddle::cuda::device
