// Gradients whose bits do not depend on the number of ranks or threads. Every batch is cut into the same kMicroShards
// micro-shards; each is computed by one thread, on a replica of the model with gradients of its own, and the gradients
// are added in the order of a fixed tree (tree_sum.h): a rank adds up the whole subtrees that it has, the ranks
// exchange these sums without adding them, and every rank adds the rest. Used by trainers instead of DataParallel's
// sums; knows no optimiser and no data set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <heddle/comm/communicator.h>
#include <heddle/nn/module.h>
#include <heddle/nn/parameter_buffer.h>
#include <heddle/nn/random_streams.h>
#include "flat_buffers.h"
#include "tree_sum.h"

namespace heddle::comm {

// Micro-shards of a batch. More ranks than this have no part in the computation. A power of two.
inline constexpr int kMicroShards = 8;

// Micro-shards [begin, end).
struct ShardRange {
  int begin = 0;
  int end = 0;
  int size() const noexcept { return end - begin; }
};

// Those of a rank: neighbours, as many for each rank as can be; none for some if there are more ranks than shards.
ShardRange shards_of_rank(int rank, int world_size) noexcept;

// Calls work(i) for all i of [0,n). On a CPU up to num_threads() of the calls run at a time, each with all that it does
// on one thread; on a GPU they run in turn on the calling thread. Throws: what work throws.
void for_each_shard(Device device, int n, const std::function<void(int)>& work);

// One micro-shard of this rank.
struct MicroShard {
  MicroShard(int number, std::shared_ptr<nn::Module> replica, nn::ParameterBuffer& original,
             const std::int64_t* counter);

  int index;                          // of [0, kMicroShards)
  std::shared_ptr<nn::Module> model;  // its parameters are the original's
  nn::ParameterBuffer parameters;     // gradients, and the tail where its losses leave their sums
  nn::RandomStreams random;           // those of place `index`
  FlatBuffers buffers;                // the original's values at the beginning of a step, moved by this shard's images
};

using ModelFactory = std::function<std::shared_ptr<nn::Module>()>;

// One rank's part. One step:
//
//   shards.compute([&](MicroShard& shard) {
//     const data::Batch batch = ...;      // images [i n / kMicroShards ...) of the n of all ranks, i = shard.index
//     if (batch.size() > 0) {
//       backward(ops::cross_entropy(shard.model->forward(batch.images), batch.labels,
//                                   {.reduction = ops::Reduction::sum, .stats = shard.parameters.tail()}));
//     }
//   });
//   shards.exchange();
//   shards.finish();
//   optimizer.step({.divide_by_weight_sum = true});   // of `parameters`
//
// No zero_grad() is needed. On a GPU compute() and finish() may be parts of recorded steps; exchange() only where the
// communicator can be.
class MicroShards {
 public:
  // model: that of `parameters`; its weights, and what is frozen in it, are those of all replicas. counter: an address
  // on its device, for random layers (see nn::RandomStreams). make_replica: makes another model of the same kind, on
  // any device, whose values do not matter. communicator: null for one rank. All that is borrowed must outlive it.
  // The model's buffers are moved into FlatBuffers: after a step they are the mean, in the tree's order, of what each
  // micro-shard made of them (one without images leaves them as they were).
  // Throws: NotSupported if a buffer is not f32; InvalidArgument if a replica is of another kind.
  MicroShards(nn::Module& model, nn::ParameterBuffer& parameters, const std::int64_t* counter,
              const ModelFactory& make_replica, Communicator* communicator = nullptr);
  MicroShards(const MicroShards&) = delete;
  MicroShards& operator=(const MicroShards&) = delete;

  const ShardRange& range() const noexcept { return range_; }
  // This rank's, in order.
  MicroShard& shard(int i) { return *shards_[static_cast<std::size_t>(i)]; }

  // Calls work with each micro-shard of this rank, see for_each_shard(), then adds up the subtrees that they make.
  // Replicas' layers are in the mode of the model's (training or not) and draw from its random streams' seeds.
  void compute(const std::function<void(MicroShard&)>& work);
  // Sends the sums of the subtrees. Nothing with one rank. Throws: CommError.
  void exchange();
  // What exchange() sends of this rank.
  std::size_t sent_nbytes() const { return alone() ? 0 : sent_.nbytes(); }
  // Puts the sums of all micro-shards into the flat gradients of `parameters`, with their tail, and the buffers' mean
  // into the model.
  void finish();
  // Gives the replicas the model's buffers, modes, frozen parameters and random streams, as compute() does: for who
  // uses them otherwise.
  void follow_model();

 private:
  bool alone() const noexcept { return communicator_ == nullptr || communicator_->world_size() == 1; }
  // The flat gradients or the flat buffers of the micro-shards below a node.
  std::vector<TreeTerm> gradients_below(const Subtree& node) const;
  std::vector<TreeTerm> buffers_below(const Subtree& node) const;
  // Row i of sent_ or gathered_: its gradients, and its buffers.
  Tensor gradients_of(Tensor& rows, std::int64_t i) const;
  Tensor buffers_of(Tensor& rows, std::int64_t i) const;

  nn::ParameterBuffer& parameters_;
  FlatBuffers buffers_;  // the model's
  Communicator* communicator_;
  ShardRange range_;
  std::vector<std::unique_ptr<MicroShard>> shards_;
  std::vector<std::pair<const nn::Module*, nn::Module*>> modules_;      // the model's and a replica's
  std::vector<std::pair<const RandomStream*, RandomStream*>> streams_;  // the same
  std::vector<Subtree> subtrees_;                                       // of this rank
  std::int64_t rows_ = 0;                                               // subtrees of a rank at most
  Tensor sent_;      // f32, flat: rows_ times the flat gradients with their tail, and the flat buffers
  Tensor gathered_;  // the same of all ranks, one after the other
};

}  // namespace heddle::comm
