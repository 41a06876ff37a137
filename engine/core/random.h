// Counter-based random numbers: Philox 4x32-10. Number i of a key is the same on every device and thread count.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace heddle {

// The four 32-bit outputs of counter block `counter` under `key`.
constexpr std::array<std::uint32_t, 4> philox_block(std::uint64_t key, std::uint64_t counter_low,
                                                    std::uint64_t counter_high = 0) noexcept {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low), c1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high), c3 = static_cast<std::uint32_t>(counter_high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// 24 random bits as a float in [0,1).
constexpr float uniform_from_bits(std::uint32_t bits) noexcept { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// A sequence of numbers from one key and stream, for host code. Not thread-safe.
class Philox {
 public:
  explicit Philox(std::uint64_t seed, std::uint64_t stream = 0) noexcept : seed_(seed), stream_(stream) {}

  std::uint32_t next_u32() noexcept {
    const auto lane = static_cast<std::size_t>(position_ % 4);
    if (lane == 0) block_ = philox_block(seed_, position_ / 4, stream_);
    ++position_;
    return block_[lane];
  }
  // Uniform in [0,1) with 24 bits.
  float uniform() noexcept { return uniform_from_bits(next_u32()); }
  // Uniform integer in [0,n), n >= 1, without bias.
  std::uint32_t below(std::uint32_t n) noexcept {
    const std::uint32_t rejected = (0u - n) % n;
    for (;;) {
      const std::uint64_t product = std::uint64_t{next_u32()} * n;
      if (static_cast<std::uint32_t>(product) >= rejected) return static_cast<std::uint32_t>(product >> 32);
    }
  }
  // Normal with mean 0 and deviation 1 (Box-Muller; two draws a call).
  double normal() noexcept;

 private:
  std::uint64_t seed_, stream_, position_ = 0;
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace heddle
