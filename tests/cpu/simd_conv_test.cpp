#include <algorithm>

#include "tests/cpu/simd_support.h"

namespace heddle::cpu::simd::test {
namespace {

struct ConvReference {
  Doubles y, dx, dw, db;
};

ConvReference conv_reference(const ConvShape& s, std::int64_t n, const Floats& x, const Floats& w, const Floats& b,
                             const Floats& dy) {
  ConvReference r;
  r.y.resize(dy.size());
  r.dx.resize(x.size());
  r.dw.resize(w.size());
  r.db.resize(b.size());
  for (std::int64_t pixel = 0; pixel < n * s.out_h * s.out_w; ++pixel) {
    const std::int64_t image = pixel / (s.out_h * s.out_w);
    const std::int64_t top = pixel / s.out_w % s.out_h * s.stride_h - s.pad_h;
    const std::int64_t left = pixel % s.out_w * s.stride_w - s.pad_w;
    for (std::int64_t oc = 0; oc < s.out_c; ++oc) {
      const auto out = static_cast<std::size_t>(pixel * s.out_c + oc);
      double sum = b[static_cast<std::size_t>(oc)];
      r.db[static_cast<std::size_t>(oc)] += dy[out];
      for (std::int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap) {
        const std::int64_t ih = top + tap / s.kernel_w, iw = left + tap % s.kernel_w;
        if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;
        for (std::int64_t ic = 0; ic < s.in_c; ++ic) {
          const auto xi = static_cast<std::size_t>(((image * s.in_h + ih) * s.in_w + iw) * s.in_c + ic);
          const auto wi = static_cast<std::size_t>((oc * s.kernel_h * s.kernel_w + tap) * s.in_c + ic);
          sum += static_cast<double>(x[xi]) * w[wi];
          r.dx[xi] += static_cast<double>(dy[out]) * w[wi];
          r.dw[wi] += static_cast<double>(dy[out]) * x[xi];
        }
      }
      r.y[out] = sum;
    }
  }
  return r;
}

// Images are cut into two ranges, the first a whole block where there are enough images.
void check_conv(const SimdKernels& k, const ConvShape& s, std::int64_t n) {
  CAPTURE(k.isa, s.in_h, s.in_w, s.in_c, s.out_c, s.kernel_h, s.kernel_w, s.stride_h, s.stride_w, s.pad_h, n);
  Random random;
  const Floats x = random.uniform(n * s.in_h * s.in_w * s.in_c);
  const Floats w = random.uniform(s.out_c * s.kernel_h * s.kernel_w * s.in_c);
  const Floats b = random.uniform(s.out_c);
  const Floats dy = random.uniform(n * s.out_h * s.out_w * s.out_c);
  const Floats mask = random.uniform(n * s.in_h * s.in_w * s.in_c);
  ConvReference expected = conv_reference(s, n, x, w, b, dy);
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (!(mask[i] > 0)) expected.dx[i] = 0;
  }

  Floats scratch = filled(k.conv_scratch_floats(s));
  Floats packed = filled(k.conv_packed_floats(s));
  const std::int64_t cut = std::min(n, k.image_block);
  const Range ranges[] = {{0, cut}, {cut, n}};

  k.conv_pack_forward(s, w.data(), packed.data());
  for (const bool with_relu : {false, true}) {
    Floats y = filled(dy.size());
    const ConvForward args = {.x = x.data(),
                              .packed_w = packed.data(),
                              .bias = b.data(),
                              .relu = with_relu,
                              .y = y.data(),
                              .scratch = scratch.data()};
    for (const Range& range : ranges) k.conv_forward(s, args, range);
    Doubles y_expected = expected.y;
    for (double& value : y_expected) value = with_relu ? std::max(value, 0.0) : value;
    CHECK(worst_error(y, y_expected) < 1e-4);
  }

  k.conv_pack_backward(s, w.data(), packed.data());
  for (const bool accumulate : {false, true}) {
    Floats dx = accumulate ? random.uniform(n * s.in_h * s.in_w * s.in_c) : filled(x.size());
    const Doubles dx_expected = accumulate ? plus(expected.dx, dx) : expected.dx;
    const ConvBackwardData args = {.dy = dy.data(),
                                   .packed_w = packed.data(),
                                   .relu_mask = mask.data(),
                                   .accumulate = accumulate,
                                   .dx = dx.data(),
                                   .scratch = scratch.data()};
    for (const Range& range : ranges) k.conv_backward_data(s, args, range);
    CHECK(worst_error(dx, dx_expected) < 1e-4);
  }

  const std::size_t partial_floats = k.conv_partial_floats(s);
  Floats partials = filled(2 * partial_floats);
  for (int i = 0; i < 2; ++i) {
    k.conv_backward_weight(s,
                           {.x = x.data(),
                            .dy = dy.data(),
                            .partial = partials.data() + partial_floats * static_cast<std::size_t>(i),
                            .scratch = scratch.data()},
                           ranges[i]);
  }
  for (const bool accumulate : {false, true}) {
    Floats dw = accumulate ? random.uniform(static_cast<std::int64_t>(w.size())) : filled(w.size());
    Floats db = accumulate ? random.uniform(s.out_c) : filled(b.size());
    const Doubles dw_expected = accumulate ? plus(expected.dw, dw) : expected.dw;
    const Doubles db_expected = accumulate ? plus(expected.db, db) : expected.db;
    k.conv_reduce_partials(
        s, {.partials = partials.data(), .count = 2, .dw = dw.data(), .db = db.data(), .accumulate = accumulate});
    CHECK(worst_error(dw, dw_expected) < 1e-4);
    CHECK(worst_error(db, db_expected) < 1e-4);
  }
}

const ConvShape kShapes[] = {
    {.in_h = 28, .in_w = 28, .in_c = 1, .out_h = 24, .out_w = 24, .out_c = 6, .kernel_h = 5, .kernel_w = 5},
    {.in_h = 12, .in_w = 12, .in_c = 6, .out_h = 8, .out_w = 8, .out_c = 16, .kernel_h = 5, .kernel_w = 5},
    {.in_h = 28, .in_w = 28, .in_c = 1, .out_h = 26, .out_w = 26, .out_c = 20, .kernel_h = 3, .kernel_w = 3},
    {.in_h = 13, .in_w = 13, .in_c = 20, .out_h = 9, .out_w = 9, .out_c = 50, .kernel_h = 5, .kernel_w = 5},
    {9, 7, 3, 5, 4, 5, 3, 3, 2, 2, 1, 1},    // stride 2, padding 1
    {7, 9, 2, 4, 3, 33, 3, 2, 2, 3, 1, 0},   // everything different in the two directions
    {5, 5, 17, 5, 5, 3, 1, 1, 1, 1, 0, 0},   // 1x1
    {6, 6, 4, 2, 2, 3, 1, 1, 3, 3, 0, 0},    // stride larger than the kernel: inputs that no window covers
    {2, 2, 1, 2, 2, 1, 5, 5, 1, 1, 2, 2},    // kernel larger than the input
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0},    //
    {11, 5, 7, 6, 3, 29, 7, 7, 2, 2, 3, 3},  // the stem of a residual network
    {4, 4, 2, 5, 5, 2, 2, 2, 1, 1, 1, 1},    // output larger than the input
    {8, 8, 3, 2, 2, 4, 3, 3, 3, 3, 0, 0},    // the last rows and columns unused
    {3, 3, 1, 2, 2, 3, 2, 2, 4, 4, 2, 2},    // a window that lies in the padding only
    {5, 6, 64, 5, 6, 64, 3, 3, 1, 1, 1, 1},  // many channels
    // A 2x2 pooling after these would have no window: the last convolution of LeNet-5, width 1, height 1.
    {5, 5, 16, 1, 1, 120, 5, 5, 1, 1, 0, 0},
    {3, 1, 64, 3, 1, 16, 3, 3, 1, 1, 1, 1},
    {1, 3, 64, 1, 3, 16, 3, 3, 1, 1, 1, 1},
    {2, 8, 32, 1, 7, 9, 2, 2, 2, 1, 0, 0},
};

TEST_CASE("SIMD convolution and its gradients match double loops") {
  for (const SimdKernels* k : available_tables()) {
    for (const ConvShape& s : kShapes) {
      for (const std::int64_t n : {1, 5, 19}) check_conv(*k, s, n);
    }
  }
}

TEST_CASE("SIMD convolution takes more images than one block") {
  for (const SimdKernels* k : available_tables()) {
    for (const std::int64_t n : {37, 49, 64}) check_conv(*k, kShapes[1], n);
    check_conv(*k, kShapes[0], 49);
  }
}

TEST_CASE("SIMD convolution repeats bit for bit") {
  const ConvShape& s = kShapes[1];
  Random random;
  const std::int64_t n = 20;
  const Floats x = random.uniform(n * s.in_h * s.in_w * s.in_c);
  const Floats dy = random.uniform(n * s.out_h * s.out_w * s.out_c);
  for (const SimdKernels* k : available_tables()) {
    std::vector<Floats> runs;
    for (int run = 0; run < 2; ++run) {
      Floats scratch = filled(k->conv_scratch_floats(s), static_cast<float>(run));
      Floats partial = filled(k->conv_partial_floats(s), static_cast<float>(run));
      k->conv_backward_weight(s, {.x = x.data(), .dy = dy.data(), .partial = partial.data(), .scratch = scratch.data()},
                              {0, n});
      Floats dw = filled(s.out_c * s.kernel_h * s.kernel_w * s.in_c);
      k->conv_reduce_partials(s, {.partials = partial.data(), .count = 1, .dw = dw.data()});
      runs.push_back(dw);
    }
    CHECK(runs[0] == runs[1]);
  }
}

}  // namespace
}  // namespace heddle::cpu::simd::test
