// The hash of engine/core/bit_hash.h of several tensors at once. Deterministic: whole numbers are added, so the order
// does not matter.
#pragma once

#include "kernels/device/types.cuh"

namespace heddle::cuda {

inline constexpr int kHashThreads = 256;
inline constexpr int kMostHashed = 128;  // tensors of a launch: the table is a parameter of 4 KB at most
inline constexpr std::int64_t kHashBlockNbytes = 1 << 16;

struct HashedTensor {
  const unsigned char* data;
  std::int64_t nbytes;
  std::int64_t first_block;  // of those that read it
};
struct HashTable {
  HashedTensor at[kMostHashed];
  std::int64_t count;
};
// Zero before and after. The sums of the launch's tensors follow the ticket.
struct HashScratch {
  unsigned long long* ticket;
  unsigned long long* sums;
};

__device__ inline std::uint64_t hash_mix(std::uint64_t h) {
  h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDu;
  h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53u;
  return h ^ (h >> 33);
}
__device__ inline std::uint64_t hash_term(std::uint64_t word, std::int64_t place) {
  return hash_mix(word + static_cast<std::uint64_t>(place + 1) * 0x9E3779B185EBCA87u);
}

// The terms of the words [begin, end) of a tensor that belong to this thread; the last word may be cut short.
__device__ inline std::uint64_t own_terms(const HashedTensor& tensor, std::int64_t begin, std::int64_t end) {
  std::uint64_t sum = 0;
  std::int64_t single = begin;
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0) {
    const std::int64_t whole = tensor.nbytes / 8 < end ? tensor.nbytes / 8 : end, pairs = (whole - begin) / 2;
    const auto* const words = reinterpret_cast<const std::uint64_t*>(tensor.data) + begin;
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < pairs; i += kHashThreads) {
      const auto pair = load_pack<2>(words + 2 * i);
      sum += hash_term(pair.at[0], begin + 2 * i) + hash_term(pair.at[1], begin + 2 * i + 1);
    }
    single += 2 * pairs;
  }
#pragma unroll 1
  for (std::int64_t i = single + threadIdx.x; i < end; i += kHashThreads) {
    const std::int64_t rest = tensor.nbytes - 8 * i;
    std::uint64_t word = 0;
    for (int byte = 0; byte < 8 && byte < rest; ++byte) {
      word |= static_cast<std::uint64_t>(tensor.data[8 * i + byte]) << (8 * byte);
    }
    sum += hash_term(word, i);
  }
  return sum;
}

// y[t]: the hash of tensor t. One block: 64 KiB of one tensor; the last to end writes the results. Blocks of 256; grid:
// as many as the tensors have, one at least. Bytes: all read once.
__global__ void __launch_bounds__(kHashThreads)
    hash_kernel(const __grid_constant__ HashTable table, HashScratch scratch, std::int64_t* y) {
  __shared__ unsigned long long of_warps[kHashThreads / 32];
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x);
  // Of tensors without bytes only the last has a block.
  int t = 0;
  while (t + 1 < table.count && table.at[t + 1].first_block <= blockIdx.x) ++t;
  const HashedTensor& tensor = table.at[t];
  const std::int64_t words = (tensor.nbytes + 7) / 8;
  const std::int64_t begin = (blockIdx.x - tensor.first_block) * (kHashBlockNbytes / 8);
  const std::int64_t end = begin + kHashBlockNbytes / 8 < words ? begin + kHashBlockNbytes / 8 : words;
  unsigned long long sum = begin < end ? own_terms(tensor, begin, end) : 0;
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (thread % 32 == 0) of_warps[thread / 32] = sum;
  __syncthreads();
  if (thread == 0) {
    for (int w = 1; w < kHashThreads / 32; ++w) sum += of_warps[w];
    atomicAdd(scratch.sums + t, sum);
    __threadfence();
    last = atomicAdd(scratch.ticket, 1ull) == gridDim.x - 1;
    if (last) *scratch.ticket = 0;
    __threadfence();
  }
  __syncthreads();
  if (!last || thread >= table.count) return;
  const std::uint64_t total = atomicExch(scratch.sums + thread, 0ull);
  y[thread] = static_cast<std::int64_t>(hash_mix(total + static_cast<std::uint64_t>(table.at[thread].nbytes)));
}

}  // namespace heddle::cuda
