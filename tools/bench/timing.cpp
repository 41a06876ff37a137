#include "tools/bench/timing.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "engine/core/parallel.h"

namespace heddle::tools::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGroupSeconds = 1e-3;
constexpr std::int64_t kMaxGroup = 10000;
// A machine whose cache is larger than this gets as much other data anyway.
constexpr double kMinOther = 32e6, kMaxOther = 256e6;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The value at share q of the sorted values, between neighbours linearly.
double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

}  // namespace

Timing summarize(std::vector<double> seconds, std::int64_t calls) {
  HEDDLE_CHECK(!seconds.empty(), "no times to summarize");
  std::sort(seconds.begin(), seconds.end());
  const double median = quantile(seconds, 0.5);
  return {.median = median,
          .min = seconds.front(),
          .max = seconds.back(),
          .spread = median > 0 ? (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / median : 0,
          .repeats = static_cast<int>(seconds.size()),
          .calls = calls};
}

std::int64_t calls_in_group(double seconds) {
  return std::clamp<std::int64_t>(seconds > 0 ? static_cast<std::int64_t>(kGroupSeconds / seconds) : kMaxGroup, 1,
                                  kMaxGroup);
}

Timer::Timer(Device device, double cache_nbytes)
    : device_(device),
      stopwatch_(runtime_for(device).make_stopwatch()),
      // Written once, since pages that were never written to all show the same zeros.
      other_(Tensor::full({static_cast<std::int64_t>(std::clamp(2 * cache_nbytes, kMinOther, kMaxOther) / 4)}, 1,
                          DType::f32, device)) {}

void Timer::fill_caches() {
  if (!device_.is_cpu()) {
    runtime_for(device_).fill_async(other_.mutable_raw_data(), 1, other_.nbytes(), current_stream(device_));
    return;
  }
  // Read, so that nothing is left to be written back; by all threads, so that each one's own cache is filled.
  constexpr std::int64_t kLine = 16;
  const float* const data = other_.host_data<float>();
  std::atomic<float> sum{0};
  parallel_for(other_.numel() / kLine, 1, [&](std::int64_t begin, std::int64_t end) {
    float part = 0;
    for (std::int64_t i = begin; i < end; ++i) part += data[i * kLine];
    sum.store(part, std::memory_order_relaxed);
  });
}

double Timer::seconds_of(const std::function<void()>& call, std::int64_t calls) {
  const Stream stream = current_stream(device_);
  stopwatch_->start(stream);
  for (std::int64_t i = 0; i < calls; ++i) call();
  return stopwatch_->stop(stream) / static_cast<double>(calls);
}

Timing Timer::warm(const std::function<void()>& call, int repeats) {
  const Clock::time_point begin = Clock::now();
  double fastest = seconds_of(call, 1);
  for (int i = 1; i < kWarmUpCalls || seconds_since(begin) < kWarmUpSeconds; ++i) {
    fastest = std::min(fastest, seconds_of(call, 1));
  }
  const std::int64_t calls = calls_in_group(fastest);
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of(call, calls));
  return summarize(std::move(seconds), calls);
}

Timing Timer::cold(const std::function<void()>& call, int repeats) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    fill_caches();
    seconds.push_back(seconds_of(call, 1));
  }
  return summarize(std::move(seconds), 1);
}

}  // namespace heddle::tools::bench
