// Ties the random layers of a model (dropout) to a counter on the device, so that a recorded step draws new numbers at
// each replay, the same on every device and after a resume.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "module.h"

namespace heddle::nn {

// While it lives, the model's random streams take their stream number from the counter: step_slot::kRandom of a
// StepState, which must outlive it as the model must.
class RandomStreams {
 public:
  // counter: an address on the model's device. Each rank of a data-parallel training draws numbers of its own: up to
  // 2^40 a layer and step. Throws: InvalidArgument unless 0 <= rank < 2^23.
  RandomStreams(Module& model, const std::int64_t* counter, int rank = 0);
  ~RandomStreams();
  RandomStreams(const RandomStreams&) = delete;
  RandomStreams& operator=(const RandomStreams&) = delete;

  // To be called at the beginning of each step: layers draw from the beginning of the step's streams, whatever earlier
  // steps drew.
  void begin_step();

 private:
  std::vector<RandomStream*> streams_;
  std::uint64_t first_ = 0;  // offset where a step of this rank begins
};

}  // namespace heddle::nn
