#include "nccl_comm/flat_buffers.h"

namespace heddle::comm {
namespace {

constexpr std::int64_t kAlignElements = 4;

std::int64_t aligned(std::int64_t numel) { return (numel + kAlignElements - 1) / kAlignElements * kAlignElements; }

}  // namespace

FlatBuffers::FlatBuffers(nn::Module& module) {
  std::vector<nn::NamedVariable> buffers = module.named_buffers();
  std::int64_t numel = 0;
  for (const nn::NamedVariable& buffer : buffers) {
    if (buffer.variable.dtype() != DType::f32) {
      throw NotSupported(join_text("flat buffers: '", buffer.name, "' is ", buffer.variable.dtype(), ", not f32"));
    }
    numel += aligned(buffer.variable.numel());
  }
  if (numel == 0) return;
  data_ = Tensor::zeros({numel}, DType::f32, buffers.front().variable.device());
  std::int64_t at = 0;
  for (nn::NamedVariable& buffer : buffers) {
    buffer.variable.rebind(data_.slice_of_flat(at, buffer.variable.shape()), Tensor());
    at += aligned(buffer.variable.numel());
  }
}

}  // namespace heddle::comm
