// Batch norm of one block of rows in plain loops: what batch_norm.cpp runs where no vector kernel takes the dtype.
// T: elements; P: channel vectors (see visit_batch_norm). Arrays of sums have one double a channel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/cpu/visit.h"

namespace heddle::cpu {

// y = (x - center) factor + offset: what the forward pass needs of a channel. center is the mean as P holds it; what P
// lost of the mean is in offset.
template <class P>
struct NormCoefficients {
  const P* center;
  const P* factor;
  const P* offset;
};

template <class T>
struct PlainBatchNorm {
  using C = Compute<T>;
  using P = std::conditional_t<std::is_same_v<T, double>, double, float>;

  // Mean and sum of squared differences from it, rows >= 1.
  static void statistics(const T* x, std::int64_t rows, std::int64_t channels, double* mean, double* m2) {
    std::fill_n(mean, channels, 0.0);
    std::fill_n(m2, channels, 0.0);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < channels; ++c) mean[c] += static_cast<double>(load(x[r * channels + c]));
    }
    for (std::int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<double>(rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const double difference = static_cast<double>(load(x[r * channels + c])) - mean[c];
        m2[c] += difference * difference;
      }
    }
  }

  // addend may be null.
  static void normalise(const T* x, const T* addend, std::int64_t rows, std::int64_t channels,
                        const NormCoefficients<P>& k, bool relu, T* y) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t i = r * channels + c;
        C value = (load(x[i]) - k.center[c]) * k.factor[c] + k.offset[c];
        if (addend != nullptr) value += load(addend[i]);
        y[i] = T(relu && value < 0 ? C(0) : value);
      }
    }
  }

  // Sums of dz and of dz (x - mean) inv_std. y: null without ReLU.
  static void sums(const T* x, const T* dy, const T* y, std::int64_t rows, std::int64_t channels, const P* mean,
                   const P* inv_std, double* sum_dz, double* sum_dz_xhat) {
    std::fill_n(sum_dz, channels, 0.0);
    std::fill_n(sum_dz_xhat, channels, 0.0);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t i = r * channels + c;
        if (y != nullptr && !(load(y[i]) > 0)) continue;
        const auto dz = static_cast<double>(load(dy[i]));
        sum_dz[c] += dz;
        sum_dz_xhat[c] += dz * static_cast<double>((load(x[i]) - mean[c]) * inv_std[c]);
      }
    }
  }

  struct DataBlock {
    const T* x;
    const T* dy;
    const T* y;            // null without ReLU
    const T* x_relu_mask;  // or null
    T* dx;                 // or null
    T* daddend;            // or null
    bool add_dx, add_daddend;
  };
  // dx (=|+=) (dz - dz_mean - (x - mean) slope) factor; daddend (=|+=) dz.
  static void data(const DataBlock& b, std::int64_t rows, std::int64_t channels, const P* mean, const P* factor,
                   const P* dz_mean, const P* slope) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t i = r * channels + c;
        const C dz = b.y != nullptr && !(load(b.y[i]) > 0) ? C(0) : load(b.dy[i]);
        if (b.daddend != nullptr) b.daddend[i] = T(b.add_daddend ? load(b.daddend[i]) + dz : dz);
        if (b.dx == nullptr) continue;
        C value = (dz - dz_mean[c] - (load(b.x[i]) - mean[c]) * slope[c]) * factor[c];
        if (b.x_relu_mask != nullptr && !(load(b.x_relu_mask[i]) > 0)) value = 0;
        b.dx[i] = T(b.add_dx ? load(b.dx[i]) + value : value);
      }
    }
  }
};

}  // namespace heddle::cpu
