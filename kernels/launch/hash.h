// Hashes of arrays of any type. Pointers are device memory. Nothing waits; the caller brings the scratch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::cuda {

struct HashedBytes {
  const void* data = nullptr;
  std::size_t nbytes = 0;
};
inline constexpr std::size_t kMostHashedArrays = 128;
// Words of scratch, aligned to 8 bytes: zero before a launch, and zero again when it is done.
inline constexpr std::size_t kHashScratchWords = kMostHashedArrays + 1;

// y[i] = hash_bits of arrays[i], at most kMostHashedArrays of them and at least one. One kernel.
void hash(std::span<const HashedBytes> arrays, unsigned long long* scratch, std::int64_t* y, cudaStream_t stream);

}  // namespace heddle::cuda
