// update of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::prepare_update(const Tensor&, const Tensor&, double, bool, Tensor&) {
  throw NotSupported("prepare_update");
}

void CpuBackend::sgd_update(Tensor&, const Tensor&, Tensor&, const SgdParams&, const Tensor&) {
  throw NotSupported("sgd_update");
}

void CpuBackend::adam_update(Tensor&, const Tensor&, Tensor&, Tensor&, const AdamParams&, const Tensor&) {
  throw NotSupported("adam_update");
}

}  // namespace heddle::cpu
