// gather_images of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::gather_images(const Tensor&, const Tensor&, const Tensor&, std::int64_t, const GatherImagesParams&,
                               Tensor&, Tensor&) {
  throw NotSupported("gather_images");
}

}  // namespace heddle::cpu
