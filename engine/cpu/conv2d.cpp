// conv2d of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::conv2d_forward(const Tensor&, const Tensor&, const Tensor&, const Conv2dParams&, bool, Tensor&) {
  throw NotSupported("conv2d_forward");
}

void CpuBackend::conv2d_backward_data(const Tensor&, const Tensor&, const Conv2dParams&, const Tensor&, Tensor&,
                                      WriteMode) {
  throw NotSupported("conv2d_backward_data");
}

void CpuBackend::conv2d_backward_weight(const Tensor&, const Tensor&, const Conv2dParams&, Tensor&, Tensor*,
                                        WriteMode) {
  throw NotSupported("conv2d_backward_weight");
}

}  // namespace heddle::cpu
