#include "kernels/cuda/cublas_gemm.h"

namespace heddle::cuda {

CublasGemm::CublasGemm(int device_index) : device_index_(device_index) {}

}  // namespace heddle::cuda
