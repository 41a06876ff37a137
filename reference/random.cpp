// The generator is written out again here from the paper (Salmon et al., SC 2011), with 64-bit products split by hand.
#include <array>
#include <cmath>
#include <numbers>

#include "reference/reference.h"

namespace heddle::reference {
namespace {

using Word = std::uint32_t;

std::array<Word, 4> philox(std::array<Word, 4> counter, std::array<Word, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 3528531795ull * counter[0], b = 3449720151ull * counter[2];
    counter = {Word(b >> 32) ^ counter[1] ^ key[0], Word(b), Word(a >> 32) ^ counter[3] ^ key[1], Word(a)};
    key[0] += 2654435769u;
    key[1] += 3144134277u;
  }
  return counter;
}

// Number `position` of the stream.
Word word_at(const RandomStream& random, std::uint64_t position) {
  const std::uint64_t block = position / 4;
  const auto stream = static_cast<std::uint64_t>(random.counter == nullptr ? 0 : *random.counter);
  return philox({Word(block), Word(block >> 32), Word(stream), Word(stream >> 32)},
                {Word(random.seed), Word(random.seed >> 32)})[position % 4];
}

double uniform_at(const RandomStream& random, std::int64_t i) {
  return (word_at(random, random.offset + static_cast<std::uint64_t>(i)) >> 8) / 16777216.0;
}

}  // namespace

Array dropout(const Array& x, double p, const RandomStream& random) {
  Array y(x.shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) y[i] = uniform_at(random, i) >= p ? x[i] / (1 - p) : 0;
  return y;
}

Array random_uniform(double low, double high, const RandomStream& random, const Shape& shape) {
  Array y(shape);
  for (std::int64_t i = 0; i < y.numel(); ++i) y[i] = low + (high - low) * uniform_at(random, i);
  return y;
}

Array random_normal(double mean, double stddev, const RandomStream& random, const Shape& shape) {
  Array y(shape);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const std::uint64_t position = random.offset + static_cast<std::uint64_t>(i), even = position - position % 2;
    const double u = 1 - word_at(random, even) / 4294967296.0, v = word_at(random, even + 1) / 4294967296.0;
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
    y[i] = mean + stddev * radius * (position % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }
  return y;
}

}  // namespace heddle::reference
