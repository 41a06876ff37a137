// Matrix products by cuBLASLt. This pair of files is the only one that knows cuBLAS. Used by linear.cpp and matmul.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "engine/device/device.h"
#include "kernels/launch/matrix_kernels.h"

namespace heddle::cuda {

// The cuBLASLt handle of one GPU, and the algorithm chosen for each shape. Thread-safe. math_settings() hold.
class CublasGemm {
 public:
  explicit CublasGemm(Device device);
  ~CublasGemm();
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;

  // "cuBLASLt 13.1"
  static std::string version();

  // Queues the product. Scratch is taken from the caching allocator; if there is too little memory, an algorithm with
  // less is taken, and for one that is refused another. The call must not have a relu_mask, and with row_sums neither
  // `add` nor bias nor ReLU. Returns false, with nothing queued, if cuBLASLt has no algorithm for it, or bias or
  // row_sums are not aligned to 16 bytes. T: float or __nv_bfloat16. Throws: DeviceError; OutOfMemory if not even the
  // algorithm with the least scratch finds room.
  template <class T>
  bool multiply(const GemmCall<T>& call, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::cuda
