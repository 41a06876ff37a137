// Hashes of tensors. Used through CudaBackend.
#include "kernels/launch/hash.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/split_tickets.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {

void CudaBackend::hash(std::span<const Tensor> tensors, Tensor& y) {
  static_assert(kHashScratchWords * sizeof(unsigned long long) <= kMaxTickets * sizeof(unsigned));
  const cudaStream_t on = stream();
  auto* const scratch = reinterpret_cast<unsigned long long*>(tickets_->for_stream(on));
  auto* out = data_of<std::int64_t>(y);
  std::vector<HashedBytes> arrays;
  for (std::size_t begin = 0; begin < tensors.size(); begin += kMostHashedArrays) {
    arrays.clear();
    for (const Tensor& tensor : tensors.subspan(begin, std::min(kMostHashedArrays, tensors.size() - begin))) {
      arrays.push_back({tensor.raw_data(), tensor.nbytes()});
    }
    cuda::hash(arrays, scratch, out, on);
    out += arrays.size();
  }
}

}  // namespace heddle::cuda
