#include "tests/cpu/simd_support.h"

namespace heddle::cpu::simd::test {
namespace {

struct Operands {
  Floats x, w, b, dy;
};

std::int64_t weights_of(const ConvShape& s) { return s.out_c * s.kernel_h * s.kernel_w * s.in_c; }
std::int64_t pooled_numel_of(const ConvShape& s, std::int64_t n) { return n * (s.out_h / 2) * (s.out_w / 2) * s.out_c; }

// Forward: equal to the separate kernels. Backward: the pooled gradient is spread by the separate pooling kernel and
// goes through the separate convolution kernels. tolerance: 0 where all sums are exact, whatever their order.
void check_fused(const SimdKernels& k, const ConvShape& s, std::int64_t n, PoolAfter pool, bool relu,
                 const Operands& operands, double tolerance) {
  const bool is_max = pool == PoolAfter::kMax;
  CAPTURE(k.isa, s.in_h, s.in_c, s.out_h, s.out_c, s.kernel_h, s.pad_h, n, is_max, relu);
  const PoolShape p = {.in_h = s.out_h,
                       .in_w = s.out_w,
                       .out_h = s.out_h / 2,
                       .out_w = s.out_w / 2,
                       .channels = s.out_c,
                       .kernel_h = 2,
                       .kernel_w = 2,
                       .stride_h = 2,
                       .stride_w = 2};
  const std::int64_t pooled_numel = pooled_numel_of(s, n), weights = weights_of(s);
  const Floats &x = operands.x, &w = operands.w, &b = operands.b, &dy = operands.dy;
  Floats scratch = filled(k.conv_scratch_floats(s)), packed = filled(k.conv_packed_floats(s));
  const Range all = {0, n};

  k.conv_pack_forward(s, w.data(), packed.data());
  Floats conv_y = filled(n * s.out_h * s.out_w * s.out_c), y = filled(pooled_numel), fused_y = filled(pooled_numel);
  std::vector<std::uint8_t> argmax(dy.size()), code(dy.size(), 99);
  ConvForward forward = {.x = x.data(),
                         .packed_w = packed.data(),
                         .bias = b.data(),
                         .relu = relu && !is_max,
                         .y = conv_y.data(),
                         .scratch = scratch.data()};
  k.conv_forward(s, forward, all);
  if (is_max) {
    k.max_pool_forward(p, {.x = conv_y.data(), .relu = relu, .y = y.data(), .argmax = argmax.data()}, all);
  } else {
    k.avg_pool_forward(p, {.x = conv_y.data(), .y = y.data()}, all);
  }
  forward.relu = relu;
  forward.pool = pool;
  forward.y = fused_y.data();
  forward.pool_code = code.data();
  k.conv_forward(s, forward, {0, n / 2});
  k.conv_forward(s, forward, {n / 2, n});
  // Cut in other places, an image may meet another loop for tails, and rounding may differ in the last place.
  CHECK(worst_error(fused_y, Doubles(y.begin(), y.end())) <= tolerance / 10);

  Floats conv_dy = filled(static_cast<std::int64_t>(conv_y.size()));
  if (is_max) {
    k.max_pool_backward(p, {.dy = dy.data(), .argmax = argmax.data(), .dx = conv_dy.data()}, all);
  } else {
    const float* mask = relu ? conv_y.data() : nullptr;
    k.avg_pool_backward(p, {.dy = dy.data(), .relu_mask = mask, .dx = conv_dy.data()}, all);
  }
  k.conv_pack_backward(s, w.data(), packed.data());
  std::vector<Floats> dx(2, filled(static_cast<std::int64_t>(x.size()))), dw(2, filled(weights)),
      db(2, filled(s.out_c));
  for (std::size_t fused = 0; fused < 2; ++fused) {
    const float* gradient = fused != 0 ? dy.data() : conv_dy.data();
    const PoolAfter after = fused != 0 ? pool : PoolAfter::kNone;
    k.conv_backward_data(s,
                         {.dy = gradient,
                          .pool = after,
                          .pool_code = code.data(),
                          .packed_w = packed.data(),
                          .dx = dx[fused].data(),
                          .scratch = scratch.data()},
                         all);
    Floats partial = filled(k.conv_partial_floats(s));
    k.conv_backward_weight(s,
                           {.x = x.data(),
                            .dy = gradient,
                            .pool = after,
                            .pool_code = code.data(),
                            .partial = partial.data(),
                            .scratch = scratch.data()},
                           all);
    k.conv_reduce_partials(s, {.partials = partial.data(), .count = 1, .dw = dw[fused].data(), .db = db[fused].data()});
  }
  CHECK(worst_error(dx[1], Doubles(dx[0].begin(), dx[0].end())) <= tolerance);
  CHECK(worst_error(dw[1], Doubles(dw[0].begin(), dw[0].end())) <= tolerance);
  CHECK(worst_error(db[1], Doubles(db[0].begin(), db[0].end())) <= tolerance);
}

Operands random_operands(const ConvShape& s, std::int64_t n) {
  Random random;
  Operands operands;
  operands.x = random.uniform(n * s.in_h * s.in_w * s.in_c);
  operands.w = random.uniform(weights_of(s));
  operands.b = random.uniform(s.out_c);
  operands.dy = random.uniform(pooled_numel_of(s, n));
  return operands;
}

// Values -1, 0 and 1 (the gradient: multiples of 4, whose quarters are integers), so that most windows have ties.
Operands integer_operands(const ConvShape& s, std::int64_t n, bool with_nan) {
  Random random;
  const auto integers = [&random](std::int64_t numel, std::int64_t largest, float scale) {
    Floats values(static_cast<std::size_t>(numel));
    for (float& value : values) value = static_cast<float>(random.below(2 * largest + 1) - largest) * scale;
    return values;
  };
  Operands operands{.x = integers(n * s.in_h * s.in_w * s.in_c, 1, 1.0f),
                    .w = integers(weights_of(s), 1, 1.0f),
                    .b = integers(s.out_c, 1, 1.0f),
                    .dy = integers(pooled_numel_of(s, n), 3, 4.0f)};
  for (std::size_t i = 5; with_nan && i < operands.x.size(); i += 97) operands.x[i] = kNan;
  return operands;
}

TEST_CASE("SIMD convolution with pooling on the fly equals the separate kernels") {
  const ConvShape shapes[] = {
      {.in_h = 28, .in_w = 28, .in_c = 1, .out_h = 24, .out_w = 24, .out_c = 6, .kernel_h = 5, .kernel_w = 5},
      {.in_h = 12, .in_w = 12, .in_c = 6, .out_h = 8, .out_w = 8, .out_c = 16, .kernel_h = 5, .kernel_w = 5},
      {.in_h = 28, .in_w = 28, .in_c = 1, .out_h = 26, .out_w = 26, .out_c = 20, .kernel_h = 3, .kernel_w = 3},
      {.in_h = 13, .in_w = 13, .in_c = 20, .out_h = 9, .out_w = 9, .out_c = 50, .kernel_h = 5, .kernel_w = 5},
      {9, 7, 3, 5, 4, 5, 3, 3, 2, 2, 1, 1},    // stride and padding
      {5, 5, 17, 5, 3, 3, 1, 3, 1, 1, 0, 0},   // odd in both directions
      {4, 4, 2, 5, 5, 2, 2, 2, 1, 1, 1, 1},    // output larger than the input
      {11, 5, 7, 6, 3, 29, 7, 7, 2, 2, 3, 3},  // the stem of a residual network
      {3, 3, 1, 2, 3, 3, 2, 1, 1, 1, 0, 0},    // one window
      // First layers whose channels lie in lanes: an odd number of windows, tails of channels, unused inputs.
      {8, 8, 1, 6, 6, 13, 3, 3, 1, 1, 0, 0},
      {9, 8, 1, 6, 5, 29, 3, 3, 1, 1, 0, 0},
      {6, 7, 1, 4, 5, 8, 3, 3, 1, 1, 0, 0},
      {5, 9, 1, 3, 7, 48, 3, 3, 1, 1, 0, 0},
      {7, 6, 1, 5, 4, 17, 3, 3, 1, 1, 0, 0},
      {6, 6, 1, 4, 4, 23, 3, 3, 1, 1, 0, 0},
      {8, 5, 1, 6, 3, 31, 3, 3, 1, 1, 0, 0},
      {6, 6, 1, 6, 6, 16, 3, 3, 1, 1, 1, 1},  // padding: not of that kind
      // Patches of several images at a time: three vectors, two and one, and channels that no block divides.
      {6, 6, 10, 4, 4, 19, 3, 3, 1, 1, 0, 0},
      {7, 7, 13, 6, 6, 11, 3, 3, 1, 1, 1, 1},
      {6, 5, 8, 4, 4, 7, 2, 1, 1, 1, 0, 0},
  };
  for (const SimdKernels* k : available_tables()) {
    for (const ConvShape& s : shapes) {
      for (const std::int64_t n : {2, 20, 35}) {
        for (const PoolAfter pool : {PoolAfter::kMax, PoolAfter::kAverage}) {
          for (const bool relu : {false, true}) check_fused(*k, s, n, pool, relu, random_operands(s, n), 1e-4);
        }
      }
    }
  }
}

// All products and sums are small integers and exact, so ties are ties for every kernel, and so are zeros under a ReLU:
// each must choose the same element. A NaN in the images reaches nine pixels of the output.
TEST_CASE("SIMD convolution with pooling on the fly chooses as the separate kernels do: ties, zeros, NaN") {
  const ConvShape shapes[] = {
      {28, 28, 1, 26, 26, 20, 3, 3, 1, 1, 0, 0}, {9, 8, 1, 7, 6, 23, 3, 3, 1, 1, 0, 0},
      {6, 7, 1, 4, 5, 31, 3, 3, 1, 1, 0, 0},     {5, 9, 1, 3, 7, 16, 3, 3, 1, 1, 0, 0},
      {6, 6, 1, 4, 4, 17, 3, 3, 1, 1, 0, 0},     {12, 12, 1, 8, 8, 6, 5, 5, 1, 1, 0, 0},
      {6, 6, 10, 4, 4, 19, 3, 3, 1, 1, 0, 0},
  };
  for (const SimdKernels* k : available_tables()) {
    for (const ConvShape& s : shapes) {
      for (const bool with_nan : {false, true}) {
        for (const PoolAfter pool : {PoolAfter::kMax, PoolAfter::kAverage}) {
          for (const bool relu : {false, true}) {
            CAPTURE(with_nan);
            check_fused(*k, s, 19, pool, relu, integer_operands(s, 19, with_nan), 0.0);
          }
        }
      }
    }
  }
}

TEST_CASE("SIMD convolution of a first layer with pooling repeats bit for bit, however its images are cut") {
  const ConvShape s = {
      .in_h = 28, .in_w = 28, .in_c = 1, .out_h = 26, .out_w = 26, .out_c = 20, .kernel_h = 3, .kernel_w = 3};
  const std::int64_t n = 9, pooled_numel = n * 13 * 13 * 20, weights = 20 * 9;
  Random random;
  const Floats x = random.uniform(n * 28 * 28), w = random.uniform(weights), dy = random.uniform(pooled_numel);
  for (const SimdKernels* k : available_tables()) {
    CAPTURE(k->isa);
    std::vector<Floats> y, dw;
    std::vector<std::vector<std::uint8_t>> codes;
    for (const std::int64_t cut : {0, 4, 9}) {
      Floats scratch = filled(k->conv_scratch_floats(s), static_cast<float>(cut)),
             packed = filled(k->conv_packed_floats(s)),
             partial = filled(k->conv_partial_floats(s), static_cast<float>(cut));
      k->conv_pack_forward(s, w.data(), packed.data());
      y.push_back(filled(pooled_numel));
      codes.emplace_back(dy.size(), 99);
      for (const Range range : {Range{0, cut}, Range{cut, n}}) {
        k->conv_forward(s,
                        {.x = x.data(),
                         .packed_w = packed.data(),
                         .relu = true,
                         .pool = PoolAfter::kAverage,
                         .y = y.back().data(),
                         .pool_code = codes.back().data(),
                         .scratch = scratch.data()},
                        range);
      }
      k->conv_backward_weight(s,
                              {.x = x.data(),
                               .dy = dy.data(),
                               .pool = PoolAfter::kAverage,
                               .pool_code = codes.back().data(),
                               .partial = partial.data(),
                               .scratch = scratch.data()},
                              {0, n});
      dw.push_back(filled(weights));
      k->conv_reduce_partials(s, {.partials = partial.data(), .count = 1, .dw = dw.back().data()});
    }
    for (std::size_t i = 1; i < y.size(); ++i) {
      CHECK(y[0] == y[i]);
      CHECK(codes[0] == codes[i]);
      CHECK(dw[0] == dw[i]);
    }
  }
}

}  // namespace
}  // namespace heddle::cpu::simd::test
