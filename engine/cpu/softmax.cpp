// softmax of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::softmax_forward(const Tensor&, bool, Tensor&) { throw NotSupported("softmax_forward"); }

void CpuBackend::softmax_backward(const Tensor&, const Tensor&, bool, Tensor&, WriteMode) {
  throw NotSupported("softmax_backward");
}

void CpuBackend::cross_entropy(const Tensor&, const Tensor&, const Tensor&, const CrossEntropyParams&, Tensor&, Tensor&,
                               Tensor&) {
  throw NotSupported("cross_entropy");
}

}  // namespace heddle::cpu
