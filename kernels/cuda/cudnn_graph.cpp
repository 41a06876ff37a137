#include "kernels/cuda/cudnn_graph.h"

namespace heddle::cuda {

CudnnGraphs::CudnnGraphs(int device_index) : device_index_(device_index) {}

}  // namespace heddle::cuda
