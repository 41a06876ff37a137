// reduction of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::reduce(ReduceKind, const Tensor&, std::uint32_t, Tensor&, WriteMode) { throw NotSupported("reduce"); }

void CpuBackend::argmax(const Tensor&, int, Tensor&) { throw NotSupported("argmax"); }

}  // namespace heddle::cpu
