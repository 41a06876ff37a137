// A model's buffers (running statistics) as one flat tensor, so that all of them are copied, sent and added in one go.
// Used by micro-shards. The counterpart for parameters is nn::ParameterBuffer.
#pragma once

#include <heddle/nn/module.h>

namespace heddle::comm {

class FlatBuffers {
 public:
  // Moves the buffers into one f32 tensor, of which they are views from now on, 16-byte aligned, zeros between them.
  // Throws: NotSupported if one is not f32.
  explicit FlatBuffers(nn::Module& module);

  std::int64_t numel() const { return data_.defined() ? data_.numel() : 0; }
  // Undefined without buffers.
  Tensor& data() noexcept { return data_; }

 private:
  Tensor data_;
};

}  // namespace heddle::comm
