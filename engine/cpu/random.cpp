// Random numbers and dropout. Used through CpuBackend. Element i takes number offset + i of the stream: lane
// (offset + i) % 4 of Philox block (offset + i) / 4 of the stream that the counter names, whatever the number of
// threads. See core/random.h.
#include <cmath>
#include <numbers>

#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

// A Philox number costs about as much as eight other operations.
constexpr std::int64_t kRandomGrain = kGrain / 8;

// The upper half of the generator's counter.
std::uint64_t stream_number(const RandomStream& random) {
  return random.counter == nullptr ? 0 : static_cast<std::uint64_t>(*random.counter);
}

// Calls use(i, bits) for elements [begin, end).
template <class Use>
void for_each_random(const RandomStream& random, std::int64_t begin, std::int64_t end, Use use) {
  const std::uint64_t stream = stream_number(random);
  for (std::int64_t i = begin; i < end;) {
    const std::uint64_t position = random.offset + static_cast<std::uint64_t>(i);
    const auto block = philox_block(random.seed, position / 4, stream);
    for (std::uint64_t lane = position % 4; lane < 4 && i < end; ++lane) use(i++, block[lane]);
  }
}

// The largest T below high, for results that rounding lifted to it.
template <class T>
T below(double value, double high) {
  const T rounded = static_cast<T>(value);
  return static_cast<double>(rounded) < high || value >= high
             ? rounded
             : std::nextafter(rounded, -std::numeric_limits<T>::infinity());
}

}  // namespace

void CpuBackend::dropout(const Tensor& x, double p, const RandomStream& random, Tensor& y, WriteMode mode) {
  visit_floats("dropout", x.dtype(), [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    const T* const from = data_of<T>(x);
    T* const to = data_of<T>(y);
    const C scale = static_cast<C>(1 / (1 - p));
    // A uniform number is (bits >> 8) / 2^24, so it is >= p exactly from this one on.
    const auto first_kept = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
    parallel_for(x.numel(), kRandomGrain, [&](std::int64_t begin, std::int64_t end) {
      for_each_random(random, begin, end, [&](std::int64_t i, std::uint32_t bits) {
        C value = (bits >> 8) >= first_kept ? load(from[i]) * scale : C(0);
        if (mode == WriteMode::add) value += load(to[i]);
        to[i] = convert_to<T>(value);
      });
    });
  });
}

void CpuBackend::random_uniform(double low, double high, const RandomStream& random, Tensor& y) {
  visit_floats("random_uniform", y.dtype(), [&]<class T>(TypeTag<T>) {
    T* const to = data_of<T>(y);
    parallel_for(y.numel(), kRandomGrain, [&](std::int64_t begin, std::int64_t end) {
      for_each_random(random, begin, end, [&](std::int64_t i, std::uint32_t bits) {
        const double value = low + (high - low) * static_cast<double>(uniform_from_bits(bits));
        to[i] = convert_to<T>(below<Compute<T>>(value, high));
      });
    });
  });
}

// Box-Muller on the numbers at an even stream position and the next: the even element gets the cosine, the odd the
// sine.
void CpuBackend::random_normal(double mean, double stddev, const RandomStream& random, Tensor& y) {
  visit_floats("random_normal", y.dtype(), [&]<class T>(TypeTag<T>) {
    T* const to = data_of<T>(y);
    const std::uint64_t stream = stream_number(random);
    parallel_for(y.numel(), kRandomGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end;) {
        const std::uint64_t position = random.offset + static_cast<std::uint64_t>(i);
        const auto block = philox_block(random.seed, position / 4, stream);
        for (std::uint64_t lane = position % 4; lane < 4 && i < end; ++lane) {
          const std::uint64_t even = lane - lane % 2;
          // 1 - u is in (0,1], so the logarithm is finite.
          const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(block[even]) * 0x1p-32));
          const double angle = 2 * std::numbers::pi * static_cast<double>(block[even + 1]) * 0x1p-32;
          to[i++] = convert_to<T>(mean + stddev * radius * (lane % 2 == 0 ? std::cos(angle) : std::sin(angle)));
        }
      }
    });
  });
}

}  // namespace heddle::cpu
