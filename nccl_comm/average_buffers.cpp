#include "nccl_comm/average_buffers.h"

#include "engine/backend/backend.h"

namespace heddle::comm {

void average_buffers(nn::Module& model, Communicator& communicator) {
  if (communicator.world_size() == 1) return;
  std::vector<nn::NamedVariable> averaged;
  std::int64_t numel = 0;
  for (nn::NamedVariable& buffer : model.named_buffers()) {
    if (buffer.variable.dtype() == DType::f32) {
      numel += buffer.variable.numel();
      averaged.push_back(std::move(buffer));
    } else {
      communicator.broadcast(buffer.variable.mutable_data(), 0, "buffers");
    }
  }
  if (numel == 0) return;
  const Device device = averaged.front().variable.device();
  Tensor all = Tensor::empty({numel}, DType::f32, device);
  std::int64_t at = 0;
  for (const nn::NamedVariable& buffer : averaged) {
    all.slice_of_flat(at, buffer.variable.shape()).copy_from(buffer.variable.data());
    at += buffer.variable.numel();
  }
  // By the distances from rank 0's: what is equal on all ranks stays what it was, to the bit.
  Backend& backend = backend_for(device);
  Tensor first = Tensor::empty({numel}, DType::f32, device);
  first.copy_from(all);
  communicator.broadcast(first, 0, "buffers");
  backend.binary(BinaryOp::sub, all, first, all);
  communicator.all_reduce(all, ReduceOp::sum, "buffers");
  backend.unary(UnaryOp::mul_scalar, all, 1.0 / communicator.world_size(), 0, all);
  backend.binary(BinaryOp::add, all, first, all);
  at = 0;
  for (nn::NamedVariable& buffer : averaged) {
    buffer.variable.mutable_data().copy_from(all.slice_of_flat(at, buffer.variable.shape()));
    at += buffer.variable.numel();
  }
}

}  // namespace heddle::comm
