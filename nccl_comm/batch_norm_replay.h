// Lets one rank work through the shares of a step with synchronised batch norms, one share after the other. A share
// cannot be computed alone there: what normalises it, and its gradient, hold sums over all shares. They are taken from
// the step of all ranks, where they were exchanged, and each share is asked whether what its rank has brought is what
// the share gives. That proves them from the first layer on: a layer's statistics follow from the images and from those
// of the layers before. Used by the parity gate.
//
// Why not the whole batch in one pass: its sums are taken in another order, so that activations differ in the last
// bits, and a value of rounding size may be on the other side of a ReLU, which is open or closed. One such element
// among the 100,000 of a layer on small maps changes its gradients by 0.3 %, with any two orders of summation. Here
// both sides compute the same values from the same numbers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/nn/batch_norm.h"
#include "nccl_comm/parity_comparison.h"

namespace heddle::comm {

// While it lives, the layers exchange as told here; then by their communicator again.
class BatchNormReplay {
 public:
  // layers may be null: then nothing is synchronised, and no call does anything. All must outlive it.
  BatchNormReplay(nn::SynchronisedBatchNorms* layers, Communicator& communicator);
  ~BatchNormReplay();
  BatchNormReplay(const BatchNormReplay&) = delete;
  BatchNormReplay& operator=(const BatchNormReplay&) = delete;

  // The passes from now on are those of the step of all ranks; rank 0 keeps what they exchange, in the host's memory.
  void record();
  // The passes from now on are those of a share, on rank 0 alone: its own part is compared with what the share's rank
  // has brought, and it gets the recorded parts. They are joined by the same kernels as in the step of all ranks: a
  // mean of few values often lies half-way between two floats, and the last bit of a double would decide which one it
  // is. `comparison` must outlive the passes.
  void begin_share(int share, ParityComparison& comparison);
  // Every recorded exchange was met.
  void end_share(ParityComparison& comparison);

 private:
  struct Exchange {
    std::string layer;
    ops::BatchNormPass pass;
    std::vector<double> parts;  // (ranks, numel)
  };
  void meet(const std::string& layer, ops::BatchNormPass pass, const Tensor& own, Tensor& all,
            ParityComparison& comparison);

  nn::SynchronisedBatchNorms* layers_;
  Communicator& communicator_;
  std::vector<Exchange> recorded_;
  std::size_t next_ = 0;
  int share_ = 0;
};

}  // namespace heddle::comm
