#include "kernels/cuda/cuda_backend.h"

#include <string>

#include "engine/device/device_runtime.h"
#include "kernels/cuda/cublas_gemm.h"
#include "kernels/cuda/cudnn_graph.h"

namespace heddle::cuda {

CudaBackend::CudaBackend(int index)
    : device_(Device::cuda(index)),
      gemm_(std::make_unique<CublasGemm>(index)),
      graphs_(std::make_unique<CudnnGraphs>(index)) {}

CudaBackend::~CudaBackend() = default;

std::string CudaBackend::description() const { return "CUDA"; }

cudaStream_t CudaBackend::stream() const { return static_cast<cudaStream_t>(current_stream(device_).handle); }

}  // namespace heddle::cuda
