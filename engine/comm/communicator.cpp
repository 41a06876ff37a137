#include "engine/comm/communicator.h"

namespace heddle::comm {
namespace {

void check_reducible(const char* call, const Tensor& x) {
  HEDDLE_CHECK(x.defined(), call, ": the tensor is undefined");
  HEDDLE_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::bf16 || x.dtype() == DType::i64, call, ": x is ",
               x.dtype(), ", expected f32, bf16 or i64");
}

// whole has world_size times the elements of part.
void check_parts(const char* call, const Tensor& whole, const Tensor& part, int world_size) {
  HEDDLE_CHECK(whole.defined() && part.defined(), call, ": a tensor is undefined");
  HEDDLE_CHECK(whole.dtype() == part.dtype() && whole.device() == part.device(), call, ": one tensor is ",
               whole.dtype(), " on ", whole.device(), ", the other ", part.dtype(), " on ", part.device());
  HEDDLE_CHECK(whole.numel() == part.numel() * world_size, call, ": ", whole.shape(), " has ", whole.numel(),
               " elements, expected ", world_size, " (ranks) times those of ", part.shape());
  const auto* const whole_begin = static_cast<const std::byte*>(whole.raw_data());
  const auto* const part_begin = static_cast<const std::byte*>(part.raw_data());
  HEDDLE_CHECK(
      whole.numel() == 0 || part_begin + part.nbytes() <= whole_begin || whole_begin + whole.nbytes() <= part_begin,
      call, ": x and y overlap");
}

}  // namespace

const char* name_of(ReduceOp op) noexcept { return op == ReduceOp::sum ? "sum" : "max"; }

Communicator::~Communicator() = default;

Tensor Communicator::make_exchanged(const Shape& shape, DType dtype, Device device) {
  if (world_size() > 1 && shape.numel() > 0) return do_make_exchanged(shape, dtype, device);
  return Tensor::zeros(shape, dtype, device);
}

Tensor Communicator::do_make_exchanged(const Shape& shape, DType dtype, Device device) {
  return Tensor::zeros(shape, dtype, device);
}

void Communicator::all_reduce(Tensor& x, ReduceOp op, std::string_view what) {
  check_reducible("all_reduce", x);
  if (world_size() > 1 && x.numel() > 0) do_all_reduce(x, op, what);
}

void Communicator::broadcast(Tensor& x, int root, std::string_view what) {
  HEDDLE_CHECK(x.defined(), "broadcast: the tensor is undefined");
  HEDDLE_CHECK(root >= 0 && root < world_size(), "broadcast: root is rank ", root, " of ", world_size());
  if (world_size() > 1 && x.numel() > 0) do_broadcast(x, root, what);
}

void Communicator::all_gather(const Tensor& x, Tensor& y, std::string_view what) {
  check_parts("all_gather", y, x, world_size());
  if (x.numel() == 0) return;
  if (world_size() == 1) return y.reshape(x.shape()).copy_from(x);
  do_all_gather(x, y, what);
}

void Communicator::reduce_scatter(const Tensor& x, Tensor& y, ReduceOp op, std::string_view what) {
  check_reducible("reduce_scatter", x);
  check_parts("reduce_scatter", x, y, world_size());
  if (y.numel() == 0) return;
  if (world_size() == 1) return y.reshape(x.shape()).copy_from(x);
  do_reduce_scatter(x, y, op, what);
}

void Communicator::barrier(std::string_view what) {
  if (world_size() > 1) do_barrier(what);
}

}  // namespace heddle::comm
