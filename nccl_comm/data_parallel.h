// Sums the gradients of model replicas over the ranks of a communicator. Used by trainers, between backward and the
// optimiser; knows no model, no optimiser and no library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/autograd/backward.h>
#include <heddle/comm/communicator.h>
#include <heddle/nn/module.h>
#include "buckets.h"

namespace heddle::comm {

struct DataParallelOptions {
  BucketOptions buckets;
  // Every rank begins with rank 0's parameters and buffers. false: the caller has seen to it.
  bool broadcast = true;
  // f32, or bf16: gradients are rounded to it before the exchange, added in f32, and the sums are rounded once, for
  // half the bytes. The tail is exchanged in f32 by a call of its own.
  DType reduce_dtype = DType::f32;
};

// Is told when a rank exchanges gradients, by the thread that does it: for measurements.
class ExchangeObserver {
 public:
  virtual ~ExchangeObserver() = default;
  // A call that moves `nbytes` of this rank begins; it has returned, which on a GPU means that it is queued.
  virtual void exchange_begins(std::size_t nbytes) = 0;
  virtual void exchange_ends() = 0;
};

// Each rank has a replica of the model and its share of the batch. Losses are sums over samples (Reduction::sum) that
// leave their sums in ParameterBuffer::tail(); the tail travels with the gradients, so that an update that divides by
// the weight sum divides by that of all ranks: shares of different size, class weights and ignored labels are exact,
// and a rank without any image joins with zeros. One step:
//
//   parameters.zero_grad();
//   backward(loss, data_parallel.hook());   // not at all on a rank without images
//   data_parallel.finish();
//   optimizer.step({.divide_by_weight_sum = true});
//
// To accumulate gradients over several backward passes give the hook to the last one only.
class DataParallel {
 public:
  // Compares the parameters of all ranks (names, shapes, which are frozen), then broadcasts. On a GPU the gradients, or
  // what they are rounded to, move into memory that the communicator is asked to send from, and are fresh then (see
  // Communicator::make_exchanged(), ParameterBuffer::move_gradients()). All four must outlive it.
  // Throws: CommError naming the first difference, on all ranks; InvalidArgument if the buffer is not the model's, and
  // for another reduce_dtype.
  DataParallel(nn::Module& model, nn::ParameterBuffer& parameters, Communicator& communicator,
               const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // For backward(): a bucket of gradients goes out the moment its last one is ready, on a GPU on a second stream.
  LeafReadyHook hook();
  // Sends what the hook has not sent (parameters that no rank, or only some ranks, used in the loss count as zero where
  // they were not used), and makes the current stream wait for the sums. After it the flat gradients with their tail
  // hold the sums over all ranks. Throws: CommError.
  void finish();

  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  // Null, as at first: nobody is told. It must live until the next call.
  void observe(ExchangeObserver* observer) noexcept { observer_ = observer; }

 private:
  void compare_parameters(const nn::Module& model);
  void broadcast_state(nn::Module& model);
  void count_ready(const Variable& leaf);
  void send_next();
  void exchange(const Bucket& bucket, const std::string& label);
  void all_reduce(Tensor& x, std::string_view what);

  nn::ParameterBuffer& parameters_;
  Communicator& communicator_;
  std::vector<Bucket> buckets_;
  std::vector<std::string> labels_;     // of buckets, for messages
  std::vector<std::size_t> bucket_of_;  // by segment
  std::vector<std::size_t> missing_;    // by bucket: gradients of this step that are not ready yet
  std::vector<bool> ready_;             // by segment
  std::size_t sent_ = 0;                // buckets of this step
  Stream stream_;                       // of the exchange, on a GPU
  Tensor rounded_;                      // bf16, as many elements as the gradients, if they are exchanged so
  ExchangeObserver* observer_ = nullptr;
};

}  // namespace heddle::comm
