// What the host gives to the kernels of batch norm. Tensors and options as in engine/backend/batch_norm.h: x (rows,
// channels), null where undefined; channel vectors are float. Structs have no padding: the simulated CUDA looks for
// addresses in all their words.
#pragma once

#include <cstdint>

namespace heddle::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr int kNormChannels = 64;  // of a block, at most

// Two sums of one channel: mean and squared differences from it, or the sums of dz and of dz times xhat.
struct alignas(16) ChannelPair {
  double first, second;
};

// The mask of a ReLU tells for each element whether the result is above 0: eight of them in a byte, the first in the
// lowest bit, where channels are a multiple of eight, as cuDNN has it; else a byte each, so that no byte has elements
// of two rows.
constexpr bool has_mask_bits(std::int64_t channels) { return channels % 8 == 0; }
constexpr std::int64_t mask_nbytes(std::int64_t rows, std::int64_t channels) {
  return has_mask_bits(channels) ? rows * (channels / 8) : rows * channels;
}

// How blocks share (rows, channels): blockDim.x threads side by side have a pack of channels each, blockDim.y threads
// the rows between them, in turn. Blocks of a column are `part` rows apart in blockIdx.y; columns are blockIdx.x.
struct NormShape {
  std::int64_t rows = 0, part = 0, channels = 0;
};

// For sums that several blocks of a column share.
struct NormSplit {
  ChannelPair* parts = nullptr;  // (blocks of a column, channels)
  unsigned* tickets = nullptr;   // one for each column; zero before and after
};

// Sums of all rows: from a kernel before, or those of all ranks as batch_norm_exchange_numel describes them.
struct NormSums {
  const ChannelPair* joined = nullptr;  // (channels)
  const double* exchanged = nullptr;    // (ranks, 2 channels + 4)
  std::int64_t ranks = 0;
};

template <class T>
struct NormStatisticsCall {
  const T* x = nullptr;
  ChannelPair* joined = nullptr;  // (channels), or null:
  double* exchange = nullptr;     // (2 channels + 4)
};

template <class T>
struct NormForwardCall {
  const T* x = nullptr;
  const T* addend = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  NormSums sums;
  float* running_mean = nullptr;
  float* running_var = nullptr;
  double eps = 0, momentum = 0;
  int batch_statistics = 1, relu = 0;
  T* y = nullptr;
  std::uint8_t* mask = nullptr;  // mask_nbytes
  float* mean = nullptr;
  float* inv_std = nullptr;
};

template <class T>
struct NormBackwardCall {
  const T* x = nullptr;
  const T* dy = nullptr;
  // Where the ReLU was open; both null without one.
  const std::uint8_t* mask = nullptr;
  const T* y = nullptr;
  const float* scale = nullptr;
  const float* mean = nullptr;
  const float* inv_std = nullptr;
  NormSums sums;  // for dx with batch statistics
  std::int64_t batch_statistics = 1;
  const T* x_relu_mask = nullptr;
  T* dx = nullptr;
  T* daddend = nullptr;
  float* dscale = nullptr;
  float* dshift = nullptr;
  ChannelPair* joined = nullptr;  // (channels): what a kernel for dx needs, or
  double* exchange = nullptr;     // what other ranks need; both may be null
  int add_to_dx = 0, add_to_daddend = 0, add_to_dscale = 0, add_to_dshift = 0;
};

}  // namespace heddle::cuda
