// random of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::dropout(const Tensor&, double, const RandomStream&, Tensor&, WriteMode) {
  throw NotSupported("dropout");
}

void CpuBackend::random_uniform(double, double, const RandomStream&, Tensor&) { throw NotSupported("random_uniform"); }

void CpuBackend::random_normal(double, double, const RandomStream&, Tensor&) { throw NotSupported("random_normal"); }

}  // namespace heddle::cpu
