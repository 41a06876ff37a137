// Matrix products by cuBLASLt. The only file pair that knows cuBLAS.
#pragma once

namespace heddle::cuda {

// The cuBLASLt handle of one GPU and what it has learned about shapes.
class CublasGemm {
 public:
  explicit CublasGemm(int device_index);

 private:
  int device_index_;
};

}  // namespace heddle::cuda
