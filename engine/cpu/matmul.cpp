// matmul of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::matmul(const Tensor&, const Tensor&, const MatmulParams&, Tensor&, WriteMode) {
  throw NotSupported("matmul");
}

void CpuBackend::linear_forward(const Tensor&, const Tensor&, const Tensor&, bool, Tensor&) {
  throw NotSupported("linear_forward");
}

void CpuBackend::linear_backward_data(const Tensor&, const Tensor&, const Tensor&, Tensor&, WriteMode) {
  throw NotSupported("linear_backward_data");
}

void CpuBackend::linear_backward_weight(const Tensor&, const Tensor&, Tensor&, Tensor*, WriteMode) {
  throw NotSupported("linear_backward_weight");
}

}  // namespace heddle::cpu
