#include <algorithm>

#include "tests/cpu/simd_support.h"

namespace heddle::cpu::simd::test {
namespace {

struct PoolReference {
  Doubles max, relu_max, average;
  Doubles dx_max, dx_relu_max, dx_average;  // before any mask
};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

PoolReference pool_reference(const PoolShape& s, const Floats& x, const Floats& dy) {
  PoolReference r;
  for (Doubles* out : {&r.max, &r.relu_max, &r.average}) out->resize(dy.size());
  for (Doubles* in : {&r.dx_max, &r.dx_relu_max, &r.dx_average}) in->resize(x.size());
  for (std::int64_t out = 0; out < static_cast<std::int64_t>(dy.size()); ++out) {
    const std::int64_t c = out % s.channels, ow = out / s.channels % s.out_w;
    const std::int64_t oh = out / s.channels / s.out_w % s.out_h, image = out / s.channels / s.out_w / s.out_h;
    std::vector<std::int64_t> window;
    std::int64_t padded = 0;
    for (std::int64_t h = oh * s.stride_h - s.pad_h; h < oh * s.stride_h - s.pad_h + s.kernel_h; ++h) {
      for (std::int64_t w = ow * s.stride_w - s.pad_w; w < ow * s.stride_w - s.pad_w + s.kernel_w; ++w) {
        if (h < s.in_h + s.pad_h && w < s.in_w + s.pad_w) ++padded;
        if (h < 0 || w < 0 || h >= s.in_h || w >= s.in_w) continue;
        window.push_back(((image * s.in_h + h) * s.in_w + w) * s.channels + c);
      }
    }
    std::int64_t best = -1;
    double sum = 0;
    for (const std::int64_t i : window) {
      sum += x[at(i)];
      if (best < 0 || x[at(i)] > x[at(best)] || std::isnan(x[at(i)])) best = i;
    }
    const auto divisor = static_cast<double>(s.count_include_pad ? padded : static_cast<std::int64_t>(window.size()));
    r.average[at(out)] = sum / divisor;
    for (const std::int64_t i : window) r.dx_average[at(i)] += dy[at(out)] / divisor;
    const double largest = x[at(best)];
    r.max[at(out)] = largest;
    r.dx_max[at(best)] += dy[at(out)];
    r.relu_max[at(out)] = largest <= 0 ? 0.0 : largest;
    if (!(largest <= 0)) r.dx_relu_max[at(best)] += dy[at(out)];
  }
  return r;
}

Doubles masked(const Doubles& values, const Floats* mask) {
  Doubles result = values;
  for (std::size_t i = 0; mask != nullptr && i < result.size(); ++i) result[i] = (*mask)[i] > 0 ? result[i] : 0.0;
  return result;
}

void check_pool(const SimdKernels& k, const PoolShape& s, std::int64_t n, bool with_nan) {
  CAPTURE(k.isa, s.in_h, s.in_w, s.out_h, s.out_w, s.channels, s.kernel_h, s.stride_h, s.pad_h, s.count_include_pad, n);
  Random random;
  Floats x = random.uniform(n * s.in_h * s.in_w * s.channels, -1.0f, 0.6f);
  if (with_nan) {
    for (std::size_t i = 0; i < x.size(); i += 5) x[i] = kNan;
  }
  const Floats dy = random.uniform(n * s.out_h * s.out_w * s.channels);
  const Floats mask = random.uniform(static_cast<std::int64_t>(x.size()));
  const PoolReference expected = pool_reference(s, x, dy);
  const Range ranges[] = {{0, 1}, {1, n}};

  for (const bool relu : {false, true}) {
    Floats y = filled(dy.size());
    std::vector<std::uint8_t> argmax(dy.size(), 77);
    for (const Range& range : ranges) {
      k.max_pool_forward(s, {.x = x.data(), .relu = relu, .y = y.data(), .argmax = argmax.data()}, range);
    }
    CHECK(worst_error(y, relu ? expected.relu_max : expected.max) == 0);
    Floats y_alone = filled(dy.size());
    k.max_pool_forward(s, {.x = x.data(), .relu = relu, .y = y_alone.data()}, {0, n});
    CHECK(worst_error(y_alone, relu ? expected.relu_max : expected.max) == 0);
    for (const Floats* relu_mask : {static_cast<const Floats*>(nullptr), &mask}) {
      for (const bool accumulate : {false, true}) {
        Floats dx = accumulate ? random.uniform(static_cast<std::int64_t>(x.size())) : filled(x.size());
        const Doubles gradient = masked(relu ? expected.dx_relu_max : expected.dx_max, relu_mask);
        const Doubles dx_expected = accumulate ? plus(gradient, dx) : gradient;
        for (const Range& range : ranges) {
          k.max_pool_backward(s,
                              {.dy = dy.data(),
                               .argmax = argmax.data(),
                               .relu_mask = relu_mask != nullptr ? relu_mask->data() : nullptr,
                               .accumulate = accumulate,
                               .dx = dx.data()},
                              range);
        }
        CHECK(worst_error(dx, dx_expected) < 1e-6);
      }
    }
  }

  Floats y = filled(dy.size());
  for (const Range& range : ranges) k.avg_pool_forward(s, {.x = x.data(), .y = y.data()}, range);
  CHECK(worst_error(y, expected.average) < 1e-6);
  for (const Floats* relu_mask : {static_cast<const Floats*>(nullptr), &mask}) {
    for (const bool accumulate : {false, true}) {
      Floats dx = accumulate ? random.uniform(static_cast<std::int64_t>(x.size())) : filled(x.size());
      const Doubles gradient = masked(expected.dx_average, relu_mask);
      const Doubles dx_expected = accumulate ? plus(gradient, dx) : gradient;
      for (const Range& range : ranges) {
        k.avg_pool_backward(s,
                            {.dy = dy.data(),
                             .relu_mask = relu_mask != nullptr ? relu_mask->data() : nullptr,
                             .accumulate = accumulate,
                             .dx = dx.data()},
                            range);
      }
      CHECK(worst_error(dx, dx_expected) < 1e-6);
    }
  }
}

TEST_CASE("SIMD pooling and its gradients match double loops") {
  const PoolShape shapes[] = {
      {.in_h = 24,
       .in_w = 24,
       .out_h = 12,
       .out_w = 12,
       .channels = 6,
       .kernel_h = 2,
       .kernel_w = 2,
       .stride_h = 2,
       .stride_w = 2},
      {.in_h = 9,
       .in_w = 9,
       .out_h = 4,
       .out_w = 4,
       .channels = 50,
       .kernel_h = 2,
       .kernel_w = 2,
       .stride_h = 2,
       .stride_w = 2},
      {.in_h = 9,
       .in_w = 7,
       .out_h = 5,
       .out_w = 4,
       .channels = 3,
       .kernel_h = 2,
       .kernel_w = 2,
       .stride_h = 2,
       .stride_w = 2},
      {.in_h = 14,
       .in_w = 13,
       .out_h = 7,
       .out_w = 7,
       .channels = 37,
       .kernel_h = 3,
       .kernel_w = 3,
       .stride_h = 2,
       .stride_w = 2,
       .pad_h = 1,
       .pad_w = 1},
      {.in_h = 7,
       .in_w = 8,
       .out_h = 5,
       .out_w = 6,
       .channels = 16,
       .kernel_h = 3,
       .kernel_w = 3,
       .stride_h = 1,
       .stride_w = 1},
      {.in_h = 11,
       .in_w = 5,
       .out_h = 4,
       .out_w = 5,
       .channels = 1,
       .kernel_h = 2,
       .kernel_w = 3,
       .stride_h = 3,
       .stride_w = 1,
       .pad_h = 0,
       .pad_w = 1},
      {.in_h = 8,
       .in_w = 8,
       .out_h = 4,
       .out_w = 4,
       .channels = 9,
       .kernel_h = 3,
       .kernel_w = 3,
       .stride_h = 2,
       .stride_w = 2},
      {.in_h = 15,
       .in_w = 17,
       .out_h = 1,
       .out_w = 1,
       .channels = 2,
       .kernel_h = 15,
       .kernel_w = 17,
       .stride_h = 1,
       .stride_w = 1},
  };
  for (const SimdKernels* k : available_tables()) {
    for (PoolShape s : shapes) {
      for (const bool include : {false, true}) {
        s.count_include_pad = include;
        check_pool(*k, s, 3, false);
      }
    }
  }
}

TEST_CASE("SIMD max pooling lets NaN win") {
  for (const SimdKernels* k : available_tables()) {
    check_pool(*k,
               {.in_h = 6,
                .in_w = 6,
                .out_h = 3,
                .out_w = 3,
                .channels = 7,
                .kernel_h = 2,
                .kernel_w = 2,
                .stride_h = 2,
                .stride_w = 2},
               2, true);
    check_pool(*k,
               {.in_h = 6,
                .in_w = 6,
                .out_h = 4,
                .out_w = 4,
                .channels = 7,
                .kernel_h = 3,
                .kernel_w = 3,
                .stride_h = 1,
                .stride_w = 1},
               2, true);
  }
}

TEST_CASE("SIMD max pooling of minus infinity passes the gradient to the first element") {
  for (const SimdKernels* k : available_tables()) {
    const Floats x(4, -kInfinity);
    Floats y(1), dy(1, 3.0f), dx(4, kNan);
    std::vector<std::uint8_t> argmax(1);
    const PoolShape s = {.in_h = 2,
                         .in_w = 2,
                         .out_h = 1,
                         .out_w = 1,
                         .channels = 1,
                         .kernel_h = 2,
                         .kernel_w = 2,
                         .stride_h = 2,
                         .stride_w = 2};
    k->max_pool_forward(s, {.x = x.data(), .y = y.data(), .argmax = argmax.data()}, {0, 1});
    k->max_pool_backward(s, {.dy = dy.data(), .argmax = argmax.data(), .dx = dx.data()}, {0, 1});
    CHECK(y[0] == -kInfinity);
    CHECK(dx == Floats{3.0f, 0.0f, 0.0f, 0.0f});
  }
}

}  // namespace
}  // namespace heddle::cpu::simd::test
