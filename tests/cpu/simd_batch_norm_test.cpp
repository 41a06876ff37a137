#include <cmath>

#include "tests/cpu/simd_support.h"

namespace heddle::cpu::simd::test {
namespace {

struct Sizes {
  std::int64_t rows, channels;
};
// Fewer elements than a vector, rows that fill none, and periods longer than the block.
const Sizes kSizes[] = {{1, 1},  {3, 1},  {2, 3},   {5, 7},   {9, 16}, {13, 24},
                        {40, 6}, {7, 33}, {4, 130}, {2, 525}, {31, 64}};

// Channel values as the kernels read them.
Floats repeated(const SimdKernels& k, const Floats& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  Floats all;
  for (std::int64_t i = 0; i < k.batch_norm_period(n); ++i) all.push_back(values[static_cast<std::size_t>(i % n)]);
  return all;
}
std::vector<std::uint8_t> mask_memory(std::int64_t numel) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(batch_norm_mask_nbytes(numel)), 0xff);
}

struct Channels {
  Floats a, b, c, d;
  double at(const Floats& v, std::size_t i) const { return static_cast<double>(v[i % v.size()]); }
};

}  // namespace

TEST_CASE("SIMD batch norm: statistics of a block, also where the mean is large") {
  Random random;
  for (const SimdKernels* k : available_tables()) {
    for (const Sizes& s : kSizes) {
      for (const float shift : {0.0f, 1000.0f}) {
        CAPTURE(k->isa, s.rows, s.channels, shift);
        Floats x = random.uniform(s.rows * s.channels);
        for (float& v : x) v += shift;
        Doubles mean(static_cast<std::size_t>(s.channels)), m2(mean.size());
        Floats scratch = filled(k->batch_norm_scratch_floats(s.channels));
        k->batch_norm_statistics({s.channels, s.rows}, x.data(), mean.data(), m2.data(), scratch.data());
        double worst = 0;
        for (std::size_t c = 0; c < mean.size(); ++c) {
          double sum = 0, squares = 0;
          for (std::size_t i = c; i < x.size(); i += mean.size()) sum += static_cast<double>(x[i]);
          sum /= static_cast<double>(s.rows);
          for (std::size_t i = c; i < x.size(); i += mean.size())
            squares += std::pow(static_cast<double>(x[i]) - sum, 2);
          worst = std::max({worst, std::abs(mean[c] - sum), std::abs(m2[c] - squares) / (1 + squares)});
        }
        CHECK(worst < 2e-6);
      }
    }
  }
}

TEST_CASE("SIMD batch norm: the normalised block, its mask, and gradients that take the mask in") {
  Random random;
  for (const SimdKernels* k : available_tables()) {
    for (const Sizes& s : kSizes) {
      for (const bool add : {false, true}) {
        CAPTURE(k->isa, s.rows, s.channels, add);
        const std::int64_t n = s.rows * s.channels;
        const BatchNormBlock block{s.channels, s.rows};
        const Floats x = random.uniform(n), addend = random.uniform(n), dy = random.uniform(n),
                     open = random.uniform(n);
        const Channels v{random.uniform(s.channels), random.uniform(s.channels), random.uniform(s.channels),
                         random.uniform(s.channels)};
        const Floats a = repeated(*k, v.a), b = repeated(*k, v.b), c = repeated(*k, v.c), d = repeated(*k, v.d);
        Doubles y, dz, dx;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double z = (static_cast<double>(x[i]) - v.at(v.a, i)) * v.at(v.b, i) + v.at(v.c, i) +
                           (add ? static_cast<double>(addend[i]) : 0);
          y.push_back(std::max(z, 0.0));
          // Elements near the edge may be on either side.
          dz.push_back(std::abs(z) < 1e-5 ? std::nan("") : z > 0 ? static_cast<double>(dy[i]) : 0);
          const double xm = static_cast<double>(x[i]) - v.at(v.a, i);
          dx.push_back((dz[i] - v.at(v.b, i) - xm * v.at(v.c, i)) * v.at(v.d, i));
        }
        Floats out = filled(n);
        std::vector<std::uint8_t> mask = mask_memory(n);
        k->batch_norm_normalise(block, {.x = x.data(),
                                        .addend = add ? addend.data() : nullptr,
                                        .center = a.data(),
                                        .factor = b.data(),
                                        .offset = c.data(),
                                        .relu = true,
                                        .y = out.data(),
                                        .mask = mask.data()});
        CHECK(worst_error(out, y) < 1e-6);
        Floats plain = filled(n);
        k->batch_norm_normalise(block, {.x = x.data(),
                                        .addend = add ? addend.data() : nullptr,
                                        .center = a.data(),
                                        .factor = b.data(),
                                        .offset = c.data(),
                                        .relu = true,
                                        .y = plain.data()});
        CHECK(plain == out);
        // Where an element is at the edge the kernel has decided.
        for (std::size_t i = 0; i < dz.size(); ++i) {
          if (!std::isnan(dz[i])) continue;
          dz[i] = out[i] > 0 ? static_cast<double>(dy[i]) : 0;
          dx[i] = (dz[i] - v.at(v.b, i) - (static_cast<double>(x[i]) - v.at(v.a, i)) * v.at(v.c, i)) * v.at(v.d, i);
        }

        Doubles sum_dz(static_cast<std::size_t>(s.channels)), sum_dz_x(sum_dz.size());
        Floats scratch = filled(k->batch_norm_scratch_floats(s.channels));
        k->batch_norm_sums(block, {.x = x.data(),
                                   .dy = dy.data(),
                                   .mask = mask.data(),
                                   .mean = a.data(),
                                   .sum_dz = sum_dz.data(),
                                   .sum_dz_x = sum_dz_x.data(),
                                   .scratch = scratch.data()});
        double worst = 0;
        for (std::size_t channel = 0; channel < sum_dz.size(); ++channel) {
          double first = 0, second = 0;
          for (std::size_t i = channel; i < x.size(); i += sum_dz.size()) {
            first += dz[i];
            second += dz[i] * (static_cast<double>(x[i]) - v.at(v.a, i));
          }
          worst = std::max({worst, std::abs(sum_dz[channel] - first), std::abs(sum_dz_x[channel] - second)});
        }
        CHECK(worst < 1e-5);

        BatchNormData data{.x = x.data(),
                           .dy = dy.data(),
                           .mask = mask.data(),
                           .mean = a.data(),
                           .dz_mean = b.data(),
                           .slope = c.data(),
                           .factor = d.data()};
        for (const bool accumulate : {false, true}) {
          const Floats before = accumulate ? random.uniform(n) : filled(n);
          Floats gradient = before, other = before;
          data.dx = gradient.data();
          data.daddend = add ? other.data() : nullptr;
          data.add_dx = data.add_daddend = accumulate;
          data.x_relu_mask = nullptr;
          k->batch_norm_data(block, data);
          CHECK(worst_error(gradient, accumulate ? plus(dx, before) : dx) < 1e-6);
          if (add) CHECK(worst_error(other, accumulate ? plus(dz, before) : dz) < 1e-6);
          gradient = before;
          Doubles masked = dx;
          for (std::size_t i = 0; i < masked.size(); ++i) masked[i] = open[i] > 0 ? masked[i] : 0;
          data.x_relu_mask = open.data();
          data.daddend = nullptr;
          k->batch_norm_data(block, data);
          CHECK(worst_error(gradient, accumulate ? plus(masked, before) : masked) < 1e-6);
        }
      }
    }
  }
}

}  // namespace heddle::cpu::simd::test
