#include "tools/bench/limits.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>

#include "engine/core/parallel.h"
#include "engine/cpu/simd/simd_kernels.h"
#include "engine/device/device_runtime.h"
#include "engine/tensor/tensor.h"

namespace heddle::tools::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTries = 10;
constexpr double kMinBuffer = 64e6, kMaxBuffer = 256e6;

double best_seconds(const std::function<void()>& call) {
  double best = 1e30;
  for (int i = 0; i < kTries; ++i) {
    const Clock::time_point begin = Clock::now();
    call();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

double largest_cache() {
  double nbytes = 0;
  for (const int name : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE}) {
    nbytes = std::max(nbytes, static_cast<double>(::sysconf(name)));
  }
  return nbytes;
}

double measure_bandwidth(double cache_nbytes) {
  const auto n = static_cast<std::int64_t>(std::clamp(4 * cache_nbytes, kMinBuffer, kMaxBuffer) / 4);
  const Tensor source = Tensor::full({n}, 1);
  Tensor destination = Tensor::full({n}, 2);
  const float* const from = source.host_data<float>();
  float* const to = destination.mutable_host_data<float>();
  const double copy = best_seconds([&] {
    parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin) * sizeof(float));
    });
  });
  std::atomic<std::int64_t> nonfinite{0};
  const double read = best_seconds([&] {
    parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
      nonfinite += cpu::simd::simd_kernels().count_nonfinite(from + begin, end - begin);
    });
  });
  const double nbytes = static_cast<double>(n) * sizeof(float);
  return std::max(2 * nbytes / copy, nbytes / read);
}

double measure_multiply_adds() {
  constexpr std::int64_t kRounds = 200'000;
  std::atomic<std::int64_t> flops{0};
  const double seconds = best_seconds([&] {
    flops = 0;
    parallel_for(num_threads(), 1, [&](std::int64_t begin, std::int64_t end) {
      float result = 0;
      for (std::int64_t i = begin; i < end; ++i)
        flops += cpu::simd::simd_kernels().multiply_add_chains(kRounds, &result);
    });
  });
  return static_cast<double>(flops.load()) / seconds;
}

}  // namespace

Limits find_limits(Device device, DType dtype) {
  if (!device.is_cpu()) {
    const DeviceProperties has = runtime_for(device).properties();
    return {.bytes_per_second = has.bytes_per_second,
            .flops_per_second = dtype == DType::bf16 ? has.bf16_flops_per_second : has.f32_flops_per_second,
            .cache_nbytes = static_cast<double>(has.cache_nbytes),
            .measured = false};
  }
  const double cache = largest_cache();
  // Only f32 has a kernel that reaches the limit of the processor by construction.
  return {.bytes_per_second = measure_bandwidth(cache),
          .flops_per_second = dtype == DType::f32 ? measure_multiply_adds() : 0,
          .cache_nbytes = cache,
          .measured = true};
}

Bound bound_of(double nbytes, double flops, const Limits& limits, bool from_memory) {
  const double moving = from_memory && limits.bytes_per_second > 0 ? nbytes / limits.bytes_per_second : 0;
  const double computing = limits.flops_per_second > 0 ? flops / limits.flops_per_second : 0;
  if (moving == 0 && computing == 0) return {};
  return moving >= computing ? Bound{moving, "memory"} : Bound{computing, "arithmetic"};
}

double allowed_excess(const Limits& limits) { return limits.measured ? 1.15 : 1.0; }

}  // namespace heddle::tools::bench
