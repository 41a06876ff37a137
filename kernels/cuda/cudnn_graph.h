// Convolutions by the graph interface of cuDNN. The only file pair that knows cuDNN.
#pragma once

namespace heddle::cuda {

// The cuDNN handle of one GPU and the plans made for it.
class CudnnGraphs {
 public:
  explicit CudnnGraphs(int device_index);

 private:
  int device_index_;
};

}  // namespace heddle::cuda
