// Times every implementation of the three passes of convolution, for the choice rules in engine/cpu/conv2d.cpp, and the
// simd rows with a pooling on the fly against the same rows with one after them, for engine/cpu/conv2d_pool.cpp. Not a
// test. Usage: conv_bench [threads] [repeats]; a line per shape and pass, microseconds of the fastest run of each row.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "engine/backend/backend.h"
#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/cpu/conv2d_list.h"

using namespace heddle;
using namespace heddle::cpu;

namespace {

struct Geometry {
  std::int64_t batch, size, in_c, out_c, kernel, stride, padding;
};

const Geometry kGeometries[] = {
    {256, 28, 1, 6, 5, 1, 0},   {256, 12, 6, 16, 5, 1, 0},  {256, 28, 1, 20, 3, 1, 0},  {256, 13, 20, 50, 5, 1, 0},
    {64, 28, 1, 64, 7, 2, 3},   {64, 28, 1, 64, 3, 1, 1},   {64, 28, 3, 64, 7, 2, 3},   {64, 28, 3, 16, 3, 1, 1},
    {64, 16, 8, 16, 3, 1, 1},   {64, 16, 16, 16, 3, 1, 1},  {64, 16, 16, 32, 3, 2, 1},  {64, 16, 24, 48, 3, 1, 1},
    {64, 8, 32, 32, 3, 1, 1},   {64, 8, 32, 64, 3, 1, 1},   {64, 8, 64, 64, 3, 1, 1},   {64, 7, 64, 64, 3, 1, 1},
    {64, 7, 64, 128, 1, 2, 0},  {64, 4, 128, 128, 3, 1, 1}, {64, 2, 256, 256, 3, 1, 1}, {64, 2, 256, 512, 3, 2, 1},
    {64, 1, 512, 512, 3, 1, 1}, {64, 2, 256, 512, 1, 2, 0}, {1, 28, 1, 6, 5, 1, 0},     {1, 13, 20, 50, 5, 1, 0},
    {8, 13, 20, 50, 5, 1, 0},   {64, 12, 32, 64, 5, 1, 0},  {64, 28, 10, 10, 3, 1, 1},  {256, 8, 50, 50, 3, 1, 1},
};

Tensor random_tensor(const Shape& shape) {
  Tensor t = Tensor::empty(shape);
  Philox random(1);
  float* const data = t.mutable_host_data<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i) data[i] = random.uniform() - 0.5f;
  return t;
}

template <class Run>
double fastest_us(int repeats, Run&& run) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

// change touches the weights, as the update of a training step does.
template <class Rows, class Call>
void bench(const char* pass, const ConvSizes& s, const Rows& rows, int repeats, Tensor& w, Call&& call) {
  std::printf("  %-16s", pass);
  for (const auto& row : rows) {
    if (row.name == std::string("plain") || !row.supports(s, DType::f32)) continue;
    float value = 0;
    const double us = fastest_us(repeats, [&] {
      w.mutable_host_data<float>()[0] = value += 0.001f;
      call(row);
    });
    std::printf("  %s %9.1f (%6.1f)%s", row.name, us, 2e-3 * static_cast<double>(s.macs()) / us,
                row.wins(s, DType::f32) ? "*" : " ");
  }
  std::printf("\n");
}

// All three passes of the simd rows, with max pooling after them and on the fly. The two take turns, so that a
// neighbour of the machine meets both.
void bench_pooling(const ConvSizes& s, int repeats, const Tensor& x, const Tensor& w, const Tensor& b) {
  if (!conv_simd_supports(s, DType::f32) || s.out_h < 2 || s.out_w < 2) return;
  Backend& backend = backend_for(Device::cpu());
  const Shape pooled{s.batch, s.out_h / 2, s.out_w / 2, s.out_c};
  const Tensor dy = random_tensor(pooled);
  Tensor conv = Tensor::empty({s.batch, s.out_h, s.out_w, s.out_c}), dconv = Tensor::empty_like(conv);
  Tensor y = Tensor::empty(pooled), code = Tensor::empty(pooled, DType::u8), argmax = Tensor::empty_like(code);
  Tensor dx = Tensor::empty_like(x), dw = Tensor::empty_like(w), db = Tensor::empty_like(b);
  double after = 1e30, on_the_fly = 1e30;
  for (int i = 0; i < repeats; ++i) {
    after = std::min(after, fastest_us(1, [&] {
                       conv_forward_simd({s, x, w, b, false, conv});
                       backend.max_pool2d_forward(conv, {}, true, y, argmax);
                       backend.max_pool2d_backward(dy, y, argmax, {}, dconv, WriteMode::store);
                       conv_backward_data_simd({s, dconv, w, Tensor(), dx});
                       conv_backward_weight_simd({s, x, dconv, dw, &db, WriteMode::store});
                     }));
    on_the_fly =
        std::min(on_the_fly, fastest_us(1, [&] {
                   conv_pool_forward_simd({s, x, w, b, true, y}, PoolKind::max, code);
                   conv_pool_backward_data_simd({s, dy, w, Tensor(), dx}, PoolKind::max, code, WriteMode::store);
                   conv_pool_backward_weight_simd({s, x, dy, dw, &db, WriteMode::store}, PoolKind::max, code);
                 }));
  }
  std::printf("  simd, all passes, max pooling after %9.1f, on the fly %9.1f%s\n", after, on_the_fly,
              conv_simd_is_chosen(s, DType::f32) ? "*" : "");
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 20;
  if (argc > 1) set_num_threads(std::atoi(argv[1]));
  std::printf("microseconds (GFLOP/s) on %d threads; * marks rows that may be chosen, the first of them is\n",
              num_threads());
  for (const Geometry& g : kGeometries) {
    const std::int64_t out = (g.size + 2 * g.padding - g.kernel) / g.stride + 1;
    const ConvSizes s{
        .batch = g.batch,
        .in_h = g.size,
        .in_w = g.size,
        .in_c = g.in_c,
        .out_h = out,
        .out_w = out,
        .out_c = g.out_c,
        .kernel_h = g.kernel,
        .kernel_w = g.kernel,
        .params = {.stride_h = g.stride, .stride_w = g.stride, .padding_h = g.padding, .padding_w = g.padding}};
    std::printf("(%d,%d,%d,%d) -> %d, k %d s %d p %d\n", static_cast<int>(g.batch), static_cast<int>(g.size),
                static_cast<int>(g.size), static_cast<int>(g.in_c), static_cast<int>(g.out_c),
                static_cast<int>(g.kernel), static_cast<int>(g.stride), static_cast<int>(g.padding));
    const Tensor x = random_tensor({g.batch, g.size, g.size, g.in_c}), dy = random_tensor({g.batch, out, out, g.out_c});
    Tensor w = random_tensor({g.out_c, g.kernel, g.kernel, g.in_c}), b = random_tensor({g.out_c});
    Tensor y = Tensor::empty_like(dy), dx = Tensor::empty_like(x), dw = Tensor::empty_like(w);
    bench("forward", s, conv_forward_rows(), repeats, w, [&](const ConvForwardRow& row) {
      row.run({s, x, w, b, false, y});
    });
    bench("backward_data", s, conv_backward_data_rows(), repeats, w, [&](const ConvBackwardDataRow& row) {
      row.run({s, dy, w, Tensor(), dx});
    });
    bench("backward_weight", s, conv_backward_weight_rows(), repeats, w, [&](const ConvBackwardWeightRow& row) {
      row.run({s, x, dy, dw, &b, WriteMode::store});
    });
    bench_pooling(s, repeats, x, w, b);
  }
  return 0;
}
