// Counter-based random numbers: the same numbers as engine/core/random.h, for kernels.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox 4x32-10).
#pragma once

#include <cstdint>

#include "kernels/device/philox_stream.cuh"

namespace heddle::cuda {

struct PhiloxBlock {
  std::uint32_t at[4];
};

// The four numbers of counter block (low, high) under this key.
__device__ inline PhiloxBlock philox_block(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  auto c0 = static_cast<std::uint32_t>(low), c1 = static_cast<std::uint32_t>(low >> 32);
  auto c2 = static_cast<std::uint32_t>(high), c3 = static_cast<std::uint32_t>(high >> 32);
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
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
  return {{c0, c1, c2, c3}};
}

__device__ inline std::uint64_t stream_number(const PhiloxStream& stream) {
  return stream.counter == nullptr ? 0 : static_cast<std::uint64_t>(*stream.counter);
}

// The numbers of N neighbouring elements, N a multiple of 4, from element i on. One block for every four of them, and
// one more where the stream's offset is no multiple of 4.
template <int N>
__device__ inline void random_words(const PhiloxStream& stream, std::int64_t i, std::uint32_t (&words)[N]) {
  const std::uint64_t number = stream_number(stream), position = stream.offset + static_cast<std::uint64_t>(i);
  const unsigned lane = static_cast<unsigned>(position % 4);
  PhiloxBlock block = philox_block(stream.seed, position / 4, number);
#pragma unroll
  for (int group = 0; group < N; group += 4) {
    PhiloxBlock next = block;
    if (lane != 0 || group + 4 < N) next = philox_block(stream.seed, position / 4 + group / 4 + 1, number);
      // Word k of the group is number lane + k of both blocks together; all indices are constant, so nothing is kept in
      // local memory.
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      std::uint32_t word = block.at[k];
      if (lane == 1) word = k < 3 ? block.at[(k + 1) % 4] : next.at[(k + 1) % 4];
      if (lane == 2) word = k < 2 ? block.at[(k + 2) % 4] : next.at[(k + 2) % 4];
      if (lane == 3) word = k < 1 ? block.at[(k + 3) % 4] : next.at[(k + 3) % 4];
      words[group + k] = word;
    }
    block = next;
  }
}

// The number of one element.
__device__ inline std::uint32_t random_word(const PhiloxStream& stream, std::int64_t i) {
  const std::uint64_t position = stream.offset + static_cast<std::uint64_t>(i);
  const PhiloxBlock block = philox_block(stream.seed, position / 4, stream_number(stream));
  const unsigned lane = static_cast<unsigned>(position % 4);
  return lane == 0 ? block.at[0] : lane == 1 ? block.at[1] : lane == 2 ? block.at[2] : block.at[3];
}

}  // namespace heddle::cuda
