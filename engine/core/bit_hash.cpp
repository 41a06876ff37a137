#include "bit_hash.h"

#include <atomic>
#include <cstring>

#include "parallel.h"

namespace heddle {
namespace {

// kernels/device/hash.cuh computes the same. Odd, so that multiplying can be undone. Source: a prime of XXH64 (Collet)
// and the finaliser of MurmurHash3 (Appleby).
constexpr std::uint64_t kPlace = 0x9E3779B185EBCA87u;
constexpr std::uint64_t kMix1 = 0xFF51AFD7ED558CCDu, kMix2 = 0xC4CEB9FE1A85EC53u;
constexpr std::int64_t kGrainWords = 1 << 15;

std::uint64_t mix(std::uint64_t h) noexcept {
  h = (h ^ (h >> 33)) * kMix1;
  h = (h ^ (h >> 33)) * kMix2;
  return h ^ (h >> 33);
}

std::uint64_t term(std::uint64_t word, std::uint64_t place) noexcept { return mix(word + (place + 1) * kPlace); }

}  // namespace

std::uint64_t hash_bits(const void* data, std::size_t nbytes) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  const std::size_t words = nbytes / 8;
  std::atomic<std::uint64_t> total{0};
  parallel_for(static_cast<std::int64_t>(words), kGrainWords, [&](std::int64_t begin, std::int64_t end) {
    std::uint64_t sum = 0;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      std::uint64_t word;
      std::memcpy(&word, bytes + 8 * i, 8);
      sum += term(word, i);
    }
    total.fetch_add(sum, std::memory_order_relaxed);
  });
  std::uint64_t sum = total.load();
  if (nbytes % 8 != 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * words, nbytes % 8);
    sum += term(word, words);
  }
  return mix(sum + nbytes);
}

}  // namespace heddle
