#include "kernels/device/hash.cuh"

#include <vector>

#include "kernels/launch/hash.h"
#include "kernels/launch/launch.h"

namespace heddle::cuda {

static_assert(kMostHashed == static_cast<int>(kMostHashedArrays));

void hash(std::span<const HashedBytes> arrays, unsigned long long* scratch, std::int64_t* y, cudaStream_t stream) {
  HashTable table{};
  std::vector<Access> accesses;
  std::int64_t blocks = 0;
  for (const HashedBytes& array : arrays) {
    const auto nbytes = static_cast<std::int64_t>(array.nbytes);
    table.at[table.count++] = {static_cast<const unsigned char*>(array.data), nbytes, blocks};
    blocks += (nbytes + kHashBlockNbytes - 1) / kHashBlockNbytes;
    accesses.push_back(reads_bytes(array.data, array.nbytes));
  }
  const auto count = static_cast<std::int64_t>(arrays.size());
  accesses.push_back(updates(scratch, count + 1));
  accesses.push_back(writes(y, count));
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks < 1 ? 1 : blocks)), dim3(kHashThreads)};
  launch("hash", hash_kernel, shape, stream, std::span<const Access>(accesses), table,
         HashScratch{scratch, scratch + 1}, y);
}

}  // namespace heddle::cuda
