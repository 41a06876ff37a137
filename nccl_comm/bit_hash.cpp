#include "nccl_comm/bit_hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "engine/core/parallel.h"

namespace heddle::comm {
namespace {

// Odd, so that multiplying can be undone. Source: the round of XXH64 (Collet) and the finaliser of MurmurHash3
// (Appleby).
constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87u, kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr std::uint64_t kMix1 = 0xFF51AFD7ED558CCDu, kMix2 = 0xC4CEB9FE1A85EC53u;
// Four chains side by side, since each one waits for its multiplication.
constexpr std::size_t kLanes = 4, kStride = kLanes * sizeof(std::uint64_t);
constexpr std::size_t kChunkNbytes = std::size_t{1} << 16;
constexpr std::int64_t kGrainChunks = 4;

std::uint64_t take_in(std::uint64_t state, std::uint64_t word) noexcept {
  return std::rotl(state + word * kPrime2, 31) * kPrime1;
}

std::uint64_t finish(std::uint64_t h) noexcept {
  h = (h ^ (h >> 33)) * kMix1;
  h = (h ^ (h >> 33)) * kMix2;
  return h ^ (h >> 33);
}

std::uint64_t hash_chunk(const std::byte* data, std::size_t nbytes) noexcept {
  std::array<std::uint64_t, kLanes> lanes{1, 2, 3, 4}, words{};
  std::size_t at = 0;
  for (; at + kStride <= nbytes; at += kStride) {
    std::memcpy(words.data(), data + at, kStride);
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = take_in(lanes[i], words[i]);
  }
  if (at < nbytes) {
    words = {};
    std::memcpy(words.data(), data + at, nbytes - at);
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = take_in(lanes[i], words[i]);
  }
  std::uint64_t total = nbytes;
  for (const std::uint64_t lane : lanes) total = take_in(total, finish(lane));
  return total;
}

}  // namespace

std::uint64_t hash_bits(const void* data, std::size_t nbytes) {
  const auto* const bytes = static_cast<const std::byte*>(data);
  const std::size_t chunks = (nbytes + kChunkNbytes - 1) / kChunkNbytes;
  std::vector<std::uint64_t> parts(chunks);
  parallel_for(static_cast<std::int64_t>(chunks), kGrainChunks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * kChunkNbytes;
      parts[static_cast<std::size_t>(i)] = hash_chunk(bytes + at, std::min(kChunkNbytes, nbytes - at));
    }
  });
  std::uint64_t total = nbytes;
  for (const std::uint64_t part : parts) total = take_in(total, part);
  return finish(total);
}

std::uint64_t join_hashes(std::uint64_t a, std::uint64_t b) noexcept { return finish(take_in(take_in(0, a), b)); }

}  // namespace heddle::comm
