// Primitives that are not written yet: each refuses its call by name. A primitive that gets its file leaves this one.
#include "kernels/cuda/cuda_backend.h"

namespace heddle::cuda {
namespace {

[[noreturn]] void refuse(const char* op) { throw NotSupported(join_text(op, ": not offered on a CUDA device")); }

}  // namespace

void CudaBackend::dropout(const Tensor&, double, const RandomStream&, Tensor&, WriteMode) { refuse("dropout"); }
void CudaBackend::random_uniform(double, double, const RandomStream&, Tensor&) { refuse("random_uniform"); }
void CudaBackend::random_normal(double, double, const RandomStream&, Tensor&) { refuse("random_normal"); }
void CudaBackend::prepare_update(const Tensor&, const Tensor&, double, const UpdateParams&, StepState&, Tensor&) {
  refuse("prepare_update");
}
void CudaBackend::sgd_update(UpdateTensors&, std::span<const SgdRange>, const UpdateParams&, StepState&) {
  refuse("sgd_update");
}
void CudaBackend::adam_update(UpdateTensors&, std::span<const AdamRange>, const UpdateParams&, StepState&) {
  refuse("adam_update");
}
void CudaBackend::gather_images(const Tensor&, const Tensor&, const Tensor&, Tensor&, const GatherImagesParams&,
                                Tensor&, Tensor&) {
  refuse("gather_images");
}

}  // namespace heddle::cuda
