// Hashes of tensors. Used through CpuBackend.
#include "engine/core/bit_hash.h"
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::hash(std::span<const Tensor> tensors, Tensor& y) {
  std::int64_t* const out = y.mutable_host_data<std::int64_t>();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    out[i] = static_cast<std::int64_t>(hash_bits(tensors[i].raw_data(), tensors[i].nbytes()));
  }
}

}  // namespace heddle::cpu
