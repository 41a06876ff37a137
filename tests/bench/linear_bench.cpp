// Times the own kernels of linear layers against oneDNN's matrix product, for the choice rule in engine/cpu/matmul.cpp.
// Not a test. Usage: linear_bench [threads] [repeats]; microseconds of the fastest run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/cpu/masked_gradient.h"
#include "engine/cpu/matmul_list.h"

using namespace heddle;
using namespace heddle::cpu;

namespace {

struct Size {
  std::int64_t rows, in, out;
};
const Size kSizes[] = {{256, 256, 120}, {256, 120, 84}, {256, 84, 10},   {256, 800, 128},  {256, 128, 10},
                       {256, 512, 10},  {64, 512, 512}, {256, 512, 512}, {64, 1024, 1024}, {256, 1024, 1024},
                       {1, 256, 120},   {1, 512, 512},  {8, 800, 128},   {1024, 784, 512}, {256, 4096, 4096}};

Tensor random_tensor(const Shape& shape) {
  Tensor t = Tensor::empty(shape);
  Philox random(1);
  float* const data = t.mutable_host_data<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i) data[i] = random.uniform() - 0.5f;
  return t;
}

double fastest_us(int repeats, const std::function<void()>& run) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void compare(const char* pass, const Size& s, int repeats, const std::function<void()>& own,
             const std::function<void()>& library) {
  const double own_us = fastest_us(repeats, own), library_us = fastest_us(repeats, library);
  const double flops = 2e-3 * static_cast<double>(s.rows * s.in * s.out);
  std::printf("  %-16s simd %9.1f (%6.1f)  dnnl %9.1f (%6.1f)\n", pass, own_us, flops / own_us, library_us,
              flops / library_us);
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 30;
  if (argc > 1) set_num_threads(std::atoi(argv[1]));
  std::printf("microseconds (GFLOP/s) on %d threads\n", num_threads());
  for (const Size& s : kSizes) {
    std::printf("rows %d, %d -> %d\n", static_cast<int>(s.rows), static_cast<int>(s.in), static_cast<int>(s.out));
    const Tensor x = random_tensor({s.rows, s.in}), dy = random_tensor({s.rows, s.out}), none;
    const Tensor w = random_tensor({s.out, s.in}), b = random_tensor({s.out});
    Tensor y = Tensor::empty_like(dy), dx = Tensor::empty_like(x), dw = Tensor::empty_like(w);
    constexpr WriteMode kStore = WriteMode::store;
    const auto forward = [&] {
      gemm_dnnl_supports({.m = s.rows, .n = s.out, .k = s.in, .transpose_b = 1}, DType::f32, true, kStore);
      gemm_dnnl({{.m = s.rows, .n = s.out, .k = s.in, .transpose_b = 1}, x, w, b, y, kStore});
      relu_in_place(y);
    };
    compare(
        "forward, relu", s, repeats, [&] { linear_forward_simd(x, w, b, true, y); }, forward);
    compare(
        "backward_data", s, repeats, [&] { linear_backward_data_simd(dy, w, x, dx); },
        [&] {
          gemm_dnnl({{.m = s.rows, .n = s.in, .k = s.out}, dy, w, none, dx, kStore});
          apply_relu_mask(x, dx);
        });
    compare(
        "backward_weight", s, repeats, [&] { linear_backward_weight_simd(x, dy, dw, kStore); },
        [&] {
          gemm_dnnl({{.m = s.out, .n = s.in, .k = s.rows, .transpose_a = 1}, dy, x, none, dw, kStore});
        });
  }
  return 0;
}
