// Finds out whether the replicas of a data-parallel training are still the same, bit for bit. Used by trainers now and
// then, and by the parity gate; knows no training loop.
#pragma once

#include <string>
#include <vector>

#include <heddle/comm/communicator.h>
#include <heddle/nn/module.h>
#include <heddle/optim/optimizer.h>

namespace heddle::comm {

// A tensor of which every rank must hold the same bits.
struct ReplicaTensor {
  std::string name;
  Tensor tensor;
  // Null, or what the tensor, a flat buffer, consists of.
  const std::vector<nn::ParameterSegment>* segments = nullptr;
};

// Parameters, state tensors and counters of a training, in this order. They are views: list them once, compare often.
std::vector<ReplicaTensor> replica_state(optim::Optimizer& optimizer);
// The buffers of a model, such as running statistics, for those who keep them alike.
std::vector<ReplicaTensor> replica_buffers(const nn::Module& model);

// Compares a hash of all bits over the ranks; if it differs, those of the tensors one by one. Returns the same text on
// all ranks: empty, or the first tensor that differs and the ranks that are not like most (or not like rank 0, if
// equally many are): "weights of 'classifier.weight': rank 2 of 4 differs from the others". All tensors are on one
// device, which takes the hashes: one kernel where they are the same. Blocks; all ranks call it at the same place.
// Throws: CommError.
std::string compare_replicas(Communicator& communicator, const std::vector<ReplicaTensor>& state);

}  // namespace heddle::comm
