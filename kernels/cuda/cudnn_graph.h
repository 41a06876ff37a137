// Convolution, batch norm and pooling by the graph interface of cuDNN. The cudnn_* files are the only ones that know
// cuDNN; the primitives in this folder say what they want as a GraphKey, plain data, and hand over memory by role.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/device/device.h"
#include "kernels/device/conv2d_geometry.cuh"

namespace heddle::cuda {

using device::ConvGeometry;

enum class GraphKind : std::int32_t {
  conv_forward,          // y = x * w [+ bias] [ReLU]
  conv_backward_data,    // dx (=|+=)
  conv_backward_weight,  // dw (=|+=)
  norm_forward,          // batch norm in training [+ addend] [ReLU] [mask of the ReLU]
  norm_inference,        // with the running statistics [+ addend] [ReLU]
  norm_backward,         // from dy [times the mask, that product kept]
  max_pool_forward,      // [with the index that the gradient needs]
  max_pool_backward,
  avg_pool_forward,  // the divisor counts padding if kCountPadding
  avg_pool_backward,
};

// What a graph has beside its main operation.
namespace graph_flag {
inline constexpr std::int32_t kBias = 1;
inline constexpr std::int32_t kRelu = 2;
inline constexpr std::int32_t kAdd = 4;          // gradient of a convolution: to what is there; batch norm: an addend
inline constexpr std::int32_t kMask = 8;         // forward: write the ReLU's mask; backward: multiply dy by it
inline constexpr std::int32_t kKeepMasked = 16;  // norm_backward: write dy times mask too (the gradient of the addend)
inline constexpr std::int32_t kIndex = 32;       // max_pool_forward
inline constexpr std::int32_t kCountPadding = 64;
}  // namespace graph_flag

// One graph with its sizes: all that its construction depends on. Batch norm uses batch, in_h, in_w and in_c of the
// geometry; pooling the window and strides too. Plain data without padding, hashed and stored as bytes.
struct GraphKey {
  GraphKind kind;
  std::int32_t bf16;   // images and weights are bf16, else f32; batch norm's parameters are f32
  std::int32_t flags;  // of graph_flag
  std::int32_t unused = 0;
  ConvGeometry geometry;
};

// What a tensor is to its graph. Channel vectors (bias of batch norm, scale, statistics) are f32. The numbers are the
// tensors' ids in cuDNN.
enum class GraphRole : std::int64_t {
  x = 1,
  w,
  bias,
  y,
  dx,
  dw,
  dy,
  addend,
  mask,    // a bit for each element of y, eight in a byte, the first in the lowest
  masked,  // dy times mask
  scale,
  dscale,
  dbias,
  mean,          // of the batch
  inv_std,       // 1 / sqrt(variance + epsilon) of the same
  running_mean,  // what inference takes
  running_var,
  new_running_mean,  // may be the memory of running_mean
  new_running_var,
  index,  // u8, of the window's maximum
  // Numbers, by the address of a float in host memory:
  epsilon,
  momentum,
  zero,
};

struct GraphTensor {
  GraphRole role;
  const void* data = nullptr;
  std::size_t nbytes = 0;  // 0 for a number in host memory
  bool read = true;
  bool written = false;
};

// The cuDNN handle of one GPU and the plans chosen for graphs, in memory and on disk. Thread-safe. math_settings()
// hold.
class CudnnGraphs {
 public:
  explicit CudnnGraphs(Device device);
  ~CudnnGraphs();
  CudnnGraphs(const CudnnGraphs&) = delete;
  CudnnGraphs& operator=(const CudnnGraphs&) = delete;

  // "cuDNN 9.19"
  static std::string version();

  // Queues the graph's work. Device memory is aligned to 16 bytes. Scratch is taken from the caching allocator; if
  // there is too little memory, a plan with less is taken, and for one that fails another. Returns false if cuDNN has
  // no plan for the graph under the settings, or none that runs; what was to be written may hold anything then. `name`
  // lives as long as the program. Throws: DeviceError; OutOfMemory if not even the plan with the least scratch finds
  // room.
  bool run(const char* name, const GraphKey& key, std::span<const GraphTensor> tensors, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::cuda
