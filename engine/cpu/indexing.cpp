// indexing of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::permute(const Tensor&, std::span<const int>, Tensor&) { throw NotSupported("permute"); }

void CpuBackend::copy_range(const Tensor&, std::int64_t, Tensor&, std::int64_t, int, std::int64_t, WriteMode) {
  throw NotSupported("copy_range");
}

void CpuBackend::index_select(const Tensor&, const Tensor&, Tensor&) { throw NotSupported("index_select"); }

void CpuBackend::index_add(const Tensor&, const Tensor&, Tensor&) { throw NotSupported("index_add"); }

void CpuBackend::gather(const Tensor&, int, const Tensor&, Tensor&) { throw NotSupported("gather"); }

void CpuBackend::scatter_add(const Tensor&, int, const Tensor&, Tensor&) { throw NotSupported("scatter_add"); }

}  // namespace heddle::cpu
