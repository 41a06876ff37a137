// Batch norm. Used through CudaBackend.
#include "engine/core/error.h"
#include "kernels/cuda/cuda_backend.h"

namespace heddle::cuda {
namespace {
[[noreturn]] void throw_not_offered() { throw NotSupported("batch_norm is not offered on a GPU by this build"); }
}  // namespace

Tensor CudaBackend::batch_norm_mask(const BatchNormForward&) { return {}; }
void CudaBackend::batch_norm_forward(BatchNormForward&) { throw_not_offered(); }
void CudaBackend::batch_norm_statistics(const Tensor&, Tensor&) { throw_not_offered(); }
void CudaBackend::batch_norm_backward(BatchNormBackward&) { throw_not_offered(); }
void CudaBackend::batch_norm_backward_sums(BatchNormBackward&, Tensor&) { throw_not_offered(); }
void CudaBackend::batch_norm_backward_data(BatchNormBackward&, const Tensor&) { throw_not_offered(); }

}  // namespace heddle::cuda
