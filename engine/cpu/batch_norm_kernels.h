// Batch norm of one block of rows, as batch_norm.cpp runs it: in vectors for f32 and bf16, in plain loops for f64. Each
// struct has the same members:
//   Element, Channel   of images and of channel vectors
//   period(channels)   channel vectors that are read are repeated to so many elements, a multiple of channels
//   mask_nbytes(numel) of a block's mask, 0 where y serves for it
//   statistics, normalise, sums, data
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/cpu/simd/simd_kernels.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {

// What the passes need of a block, elements of type T and channel values of type P. Pointers that are not wanted are
// null.
template <class T, class P>
struct NormaliseBlock {
  const T* x;
  const T* addend;
  const P *center, *factor, *offset;
  bool relu;
  T* y;
  std::uint8_t* mask;
};
template <class T, class P>
struct GradientBlock {
  const T *x, *dy;
  const T* y;                // where the ReLU was open: y above 0, or
  const std::uint8_t* mask;  // these bits
  const P* mean;
  // Of the second pass; see simd::BatchNormData.
  const P *dz_mean = nullptr, *slope = nullptr, *factor = nullptr;
  const T* x_relu_mask = nullptr;
  T *dx = nullptr, *daddend = nullptr;
  bool add_dx = false, add_daddend = false;
};

struct PlainBatchNorm {
  using Element = double;
  using Channel = double;
  static std::int64_t period(std::int64_t channels) { return channels; }
  static std::int64_t mask_nbytes(std::int64_t) { return 0; }

  static void statistics(const double* x, std::int64_t rows, std::int64_t channels, double* mean, double* m2) {
    std::fill_n(mean, channels, 0.0);
    std::fill_n(m2, channels, 0.0);
    for (std::int64_t i = 0; i < rows * channels; ++i) mean[i % channels] += x[i];
    for (std::int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<double>(rows);
    for (std::int64_t i = 0; i < rows * channels; ++i) {
      m2[i % channels] += (x[i] - mean[i % channels]) * (x[i] - mean[i % channels]);
    }
  }
  static void normalise(const NormaliseBlock<double, double>& b, std::int64_t rows, std::int64_t channels) {
    for (std::int64_t i = 0; i < rows * channels; ++i) {
      const std::int64_t c = i % channels;
      double y = (b.x[i] - b.center[c]) * b.factor[c] + b.offset[c];
      if (b.addend != nullptr) y += b.addend[i];
      b.y[i] = b.relu && y < 0 ? 0 : y;
    }
  }
  static double dz(const GradientBlock<double, double>& b, std::int64_t i) {
    return b.y != nullptr && !(b.y[i] > 0) ? 0 : b.dy[i];
  }
  static void sums(const GradientBlock<double, double>& b, std::int64_t rows, std::int64_t channels, double* sum_dz,
                   double* sum_dz_x) {
    std::fill_n(sum_dz, channels, 0.0);
    std::fill_n(sum_dz_x, channels, 0.0);
    for (std::int64_t i = 0; i < rows * channels; ++i) {
      sum_dz[i % channels] += dz(b, i);
      sum_dz_x[i % channels] += dz(b, i) * (b.x[i] - b.mean[i % channels]);
    }
  }
  static void data(const GradientBlock<double, double>& b, std::int64_t rows, std::int64_t channels) {
    for (std::int64_t i = 0; i < rows * channels; ++i) {
      const std::int64_t c = i % channels;
      if (b.daddend != nullptr) b.daddend[i] = (b.add_daddend ? b.daddend[i] : 0) + dz(b, i);
      if (b.dx == nullptr) continue;
      double dx = (dz(b, i) - b.dz_mean[c] - (b.x[i] - b.mean[c]) * b.slope[c]) * b.factor[c];
      if (b.x_relu_mask != nullptr && !(b.x_relu_mask[i] > 0)) dx = 0;
      b.dx[i] = (b.add_dx ? b.dx[i] : 0) + dx;
    }
  }
};

struct SimdBatchNorm {
  using Element = float;
  using Channel = float;
  static std::int64_t period(std::int64_t channels) { return simd::simd_kernels().batch_norm_period(channels); }
  static std::int64_t mask_nbytes(std::int64_t numel) { return simd::batch_norm_mask_nbytes(numel); }

  static float* scratch(std::int64_t channels) {
    thread_local std::vector<float> memory;
    memory.resize(std::max(memory.size(), simd::simd_kernels().batch_norm_scratch_floats(channels)));
    return memory.data();
  }
  static void statistics(const float* x, std::int64_t rows, std::int64_t channels, double* mean, double* m2) {
    simd::simd_kernels().batch_norm_statistics({channels, rows}, x, mean, m2, scratch(channels));
  }
  static void normalise(const NormaliseBlock<float, float>& b, std::int64_t rows, std::int64_t channels) {
    simd::simd_kernels().batch_norm_normalise({channels, rows},
                                              {b.x, b.addend, b.center, b.factor, b.offset, b.relu, b.y, b.mask});
  }
  static void sums(const GradientBlock<float, float>& b, std::int64_t rows, std::int64_t channels, double* sum_dz,
                   double* sum_dz_x) {
    simd::simd_kernels().batch_norm_sums({channels, rows},
                                         {b.x, b.dy, b.mask, b.mean, sum_dz, sum_dz_x, scratch(channels)});
  }
  static void data(const GradientBlock<float, float>& b, std::int64_t rows, std::int64_t channels) {
    simd::simd_kernels().batch_norm_data({channels, rows}, {b.x, b.dy, b.mask, b.mean, b.dz_mean, b.slope, b.factor,
                                                            b.x_relu_mask, b.dx, b.daddend, b.add_dx, b.add_daddend});
  }
};

// The same on bf16: a block is widened in the cache, and rounded when it is written.
struct Bf16BatchNorm {
  using Element = bfloat16;
  using Channel = float;
  static std::int64_t period(std::int64_t channels) { return SimdBatchNorm::period(channels); }
  static std::int64_t mask_nbytes(std::int64_t numel) { return SimdBatchNorm::mask_nbytes(numel); }

  // Arrays of a block in f32; index tells them apart.
  class Wide {
   public:
    explicit Wide(std::int64_t numel) : numel_(numel) {}
    float* array(std::size_t index) {
      thread_local std::vector<float> memory[5];
      std::vector<float>& own = memory[index];
      own.resize(std::max(own.size(), static_cast<std::size_t>(numel_)));
      return own.data();
    }
    const float* widened(std::size_t index, const bfloat16* x) {
      if (x == nullptr) return nullptr;
      float* const to = array(index);
      simd::simd_kernels().from_bfloat16(reinterpret_cast<const std::uint16_t*>(x), to, numel_);
      return to;
    }
    void round(const float* x, bfloat16* to) const {
      simd::simd_kernels().to_bfloat16(x, reinterpret_cast<std::uint16_t*>(to), numel_);
    }

   private:
    std::int64_t numel_;
  };

  static void statistics(const bfloat16* x, std::int64_t rows, std::int64_t channels, double* mean, double* m2) {
    Wide wide(rows * channels);
    SimdBatchNorm::statistics(wide.widened(0, x), rows, channels, mean, m2);
  }
  static void normalise(const NormaliseBlock<bfloat16, float>& b, std::int64_t rows, std::int64_t channels) {
    Wide wide(rows * channels);
    float* const y = wide.array(2);
    SimdBatchNorm::normalise(
        {wide.widened(0, b.x), wide.widened(1, b.addend), b.center, b.factor, b.offset, b.relu, y, b.mask}, rows,
        channels);
    wide.round(y, b.y);
  }
  static void sums(const GradientBlock<bfloat16, float>& b, std::int64_t rows, std::int64_t channels, double* sum_dz,
                   double* sum_dz_x) {
    Wide wide(rows * channels);
    const GradientBlock<float, float> w{
        .x = wide.widened(0, b.x), .dy = wide.widened(1, b.dy), .y = nullptr, .mask = b.mask, .mean = b.mean};
    SimdBatchNorm::sums(w, rows, channels, sum_dz, sum_dz_x);
  }
  static void data(const GradientBlock<bfloat16, float>& b, std::int64_t rows, std::int64_t channels) {
    Wide wide(rows * channels);
    float* const dx = b.dx == nullptr ? nullptr : wide.array(3);
    float* const daddend = b.daddend == nullptr ? nullptr : wide.array(4);
    if (b.add_dx) wide.widened(3, b.dx);
    if (b.add_daddend) wide.widened(4, b.daddend);
    SimdBatchNorm::data({.x = wide.widened(0, b.x),
                         .dy = wide.widened(1, b.dy),
                         .y = nullptr,
                         .mask = b.mask,
                         .mean = b.mean,
                         .dz_mean = b.dz_mean,
                         .slope = b.slope,
                         .factor = b.factor,
                         .x_relu_mask = wide.widened(2, b.x_relu_mask),
                         .dx = dx,
                         .daddend = daddend,
                         .add_dx = b.add_dx,
                         .add_daddend = b.add_daddend},
                        rows, channels);
    if (dx != nullptr) wide.round(dx, b.dx);
    if (daddend != nullptr) wide.round(daddend, b.daddend);
  }
};

}  // namespace heddle::cpu
