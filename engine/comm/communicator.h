// How the ranks of one training exchange tensors: the interface that models (synchronised batch norm) and data-parallel
// training know. Implementations are in nccl_comm/.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "../tensor/tensor.h"

namespace heddle::comm {

enum class ReduceOp : std::uint8_t { sum, max };
const char* name_of(ReduceOp op) noexcept;

struct CommunicatorOptions {
  // Longest wait for the other ranks in one call. Throws where it is used: InvalidArgument unless above 0.
  std::chrono::milliseconds timeout{60'000};
};

// One rank's end of a group of ranks 0 .. world_size - 1. All ranks make the same calls in the same order; what differs
// (call, number of elements, dtype, root) is found by every rank and ends the group. Work is queued on
// current_stream(tensor.device()), like that of ops; on the CPU it is done when the call returns. One thread at a time.
//
// Tensors are dense, so a call moves numel() elements. Reductions take f32, bf16 (added in f32, rounded once) and i64,
// and give every rank the same bits. `what` says in messages what is exchanged ("bucket 2"); the text must live as long
// as the call.
//
// All calls throw: InvalidArgument on tensors that do not fit; CommError, naming the call and the ranks that are late,
// gone or differ, when a deadline passed, a rank has left or aborted, or the ranks disagree. After a CommError the
// group is of no use any more and every further call throws.
class Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // "in-process", "gloo", "nccl".
  virtual const char* name() const noexcept = 0;
  virtual int rank() const noexcept = 0;
  virtual int world_size() const noexcept = 0;

  // Whether calls with tensors of a GPU may be part of a recorded step (see StepGraph). The ranks record and launch the
  // same steps then.
  virtual bool can_be_recorded() const noexcept { return false; }
  // To be asked before a recorded step with calls in it is launched. Throws: CommError if the group has ended.
  virtual void check_alive() {}

  // A zero-filled tensor for what is exchanged again and again, as gradients are: a tensor like any other, except where
  // NCCL exchanges tensors of GPUs and HEDDLE_NCCL_MEMORY asks for memory that it has registered, from which it sends
  // without copies. Results may differ in rounding then. All ranks call it alike, and exchange what lies in it at the
  // same place, all of them or none. Registered memory is only given back when all communicators of the group in this
  // process have ended; the tensor may outlive them. Throws: as all calls, also where NCCL fails to register what it
  // has agreed to; OutOfMemory.
  Tensor make_exchanged(const Shape& shape, DType dtype, Device device);
  // Where the last of these tensors lies and, if a library has refused a better place, why: for reports.
  virtual std::string exchanged_memory() const { return "ordinary memory"; }

  // Each element becomes the sum or maximum over the ranks' elements. A NaN stays one.
  void all_reduce(Tensor& x, ReduceOp op, std::string_view what = {});
  // Every rank's x becomes that of root. Any dtype.
  void broadcast(Tensor& x, int root, std::string_view what = {});
  // y becomes x of rank 0, x of rank 1, ...: y has world_size times the elements of x. Any dtype. They may not overlap.
  void all_gather(const Tensor& x, Tensor& y, std::string_view what = {});
  // y becomes the rank-th part of the sum or maximum: x has world_size times the elements of y. They may not overlap.
  void reduce_scatter(const Tensor& x, Tensor& y, ReduceOp op, std::string_view what = {});
  // Returns when all ranks have called it.
  void barrier(std::string_view what = {});

  // Ends the group: calls that wait, on any rank, throw CommError with the reason. From any thread.
  virtual void abort(const std::string& reason) noexcept = 0;

 protected:
  Communicator() = default;

  // The same after the checks, and for more than one rank with at least one element.
  virtual Tensor do_make_exchanged(const Shape& shape, DType dtype, Device device);
  virtual void do_all_reduce(Tensor& x, ReduceOp op, std::string_view what) = 0;
  virtual void do_broadcast(Tensor& x, int root, std::string_view what) = 0;
  virtual void do_all_gather(const Tensor& x, Tensor& y, std::string_view what) = 0;
  virtual void do_reduce_scatter(const Tensor& x, Tensor& y, ReduceOp op, std::string_view what) = 0;
  virtual void do_barrier(std::string_view what) = 0;
};

}  // namespace heddle::comm
