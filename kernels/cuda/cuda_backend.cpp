#include "kernels/cuda/cuda_backend.h"

#include <string>

#include "engine/device/device_runtime.h"
#include "kernels/cuda/cublas_gemm.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/split_tickets.h"
#include "kernels/launch/current_device.h"

namespace heddle::cuda {

CudaBackend::CudaBackend(int index)
    : device_(Device::cuda(index)),
      gemm_(std::make_unique<CublasGemm>(device_)),
      graphs_(std::make_unique<CudnnGraphs>(device_)),
      tickets_(std::make_unique<SplitTickets>(device_)) {}

CudaBackend::~CudaBackend() = default;

std::string CudaBackend::description() const {
  return join_text("CUDA, ", CublasGemm::version(), ", ", CudnnGraphs::version());
}

cudaStream_t CudaBackend::stream() const {
  use_device(device_.index);
  return static_cast<cudaStream_t>(current_stream(device_).handle);
}

}  // namespace heddle::cuda
