// Primitives that are not written yet: each refuses its call by name. A primitive that gets its file leaves this one.
#include "kernels/cuda/cuda_backend.h"

namespace heddle::cuda {
namespace {

[[noreturn]] void refuse(const char* op) { throw NotSupported(join_text(op, ": not offered on a CUDA device")); }

}  // namespace

void CudaBackend::permute(const Tensor&, std::span<const int>, Tensor&) { refuse("permute"); }
void CudaBackend::copy_range(const Tensor&, std::int64_t, Tensor&, std::int64_t, int, std::int64_t, WriteMode) {
  refuse("copy_range");
}
void CudaBackend::index_select(const Tensor&, const Tensor&, Tensor&) { refuse("index_select"); }
void CudaBackend::index_add(const Tensor&, const Tensor&, Tensor&) { refuse("index_add"); }
void CudaBackend::gather(const Tensor&, int, const Tensor&, Tensor&) { refuse("gather"); }
void CudaBackend::scatter_add(const Tensor&, int, const Tensor&, Tensor&) { refuse("scatter_add"); }
void CudaBackend::max_pool2d_forward(const Tensor&, const Pool2dParams&, bool, Tensor&, Tensor&) {
  refuse("max_pool2d_forward");
}
void CudaBackend::max_pool2d_backward(const Tensor&, const Tensor&, const Tensor&, const Pool2dParams&, Tensor&,
                                      WriteMode) {
  refuse("max_pool2d_backward");
}
void CudaBackend::avg_pool2d_forward(const Tensor&, const Pool2dParams&, Tensor&) { refuse("avg_pool2d_forward"); }
void CudaBackend::avg_pool2d_backward(const Tensor&, const Pool2dParams&, const Tensor&, Tensor&, WriteMode) {
  refuse("avg_pool2d_backward");
}
void CudaBackend::adaptive_pool2d_forward(PoolKind, const Tensor&, Tensor&, Tensor&) {
  refuse("adaptive_pool2d_forward");
}
void CudaBackend::adaptive_pool2d_backward(PoolKind, const Tensor&, const Tensor&, Tensor&, WriteMode) {
  refuse("adaptive_pool2d_backward");
}
void CudaBackend::softmax_forward(const Tensor&, bool, Tensor&) { refuse("softmax_forward"); }
void CudaBackend::softmax_backward(const Tensor&, const Tensor&, bool, Tensor&, WriteMode) {
  refuse("softmax_backward");
}
void CudaBackend::cross_entropy(const Tensor&, const Tensor&, const Tensor&, const CrossEntropyParams&, Tensor&,
                                Tensor&, Tensor&) {
  refuse("cross_entropy");
}
void CudaBackend::dropout(const Tensor&, double, const RandomStream&, Tensor&, WriteMode) { refuse("dropout"); }
void CudaBackend::random_uniform(double, double, const RandomStream&, Tensor&) { refuse("random_uniform"); }
void CudaBackend::random_normal(double, double, const RandomStream&, Tensor&) { refuse("random_normal"); }
void CudaBackend::prepare_update(const Tensor&, const Tensor&, double, bool, Tensor&) { refuse("prepare_update"); }
void CudaBackend::sgd_update(Tensor&, const Tensor&, Tensor&, const SgdParams&, const Tensor&) { refuse("sgd_update"); }
void CudaBackend::adam_update(Tensor&, const Tensor&, Tensor&, Tensor&, const AdamParams&, const Tensor&) {
  refuse("adam_update");
}
void CudaBackend::gather_images(const Tensor&, const Tensor&, const Tensor&, std::int64_t, const GatherImagesParams&,
                                Tensor&, Tensor&) {
  refuse("gather_images");
}

}  // namespace heddle::cuda
