// pooling of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::max_pool2d_forward(const Tensor&, const Pool2dParams&, bool, Tensor&, Tensor&) {
  throw NotSupported("max_pool2d_forward");
}

void CpuBackend::max_pool2d_backward(const Tensor&, const Tensor&, const Tensor&, const Pool2dParams&, Tensor&,
                                     WriteMode) {
  throw NotSupported("max_pool2d_backward");
}

void CpuBackend::avg_pool2d_forward(const Tensor&, const Pool2dParams&, Tensor&) {
  throw NotSupported("avg_pool2d_forward");
}

void CpuBackend::avg_pool2d_backward(const Tensor&, const Pool2dParams&, const Tensor&, Tensor&, WriteMode) {
  throw NotSupported("avg_pool2d_backward");
}

void CpuBackend::adaptive_pool2d_forward(PoolKind, const Tensor&, Tensor&, Tensor&) {
  throw NotSupported("adaptive_pool2d_forward");
}

void CpuBackend::adaptive_pool2d_backward(PoolKind, const Tensor&, const Tensor&, Tensor&, WriteMode) {
  throw NotSupported("adaptive_pool2d_backward");
}

}  // namespace heddle::cpu
