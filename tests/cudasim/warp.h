// One warp of the running block: lanes that arrive at a warp operation, and its results. Used by the block runner.
#pragma once

#include <cstdint>

#include "tests/cudasim/shim/warp.h"

namespace cudasim {

// Notes and answers the operations of 32 lanes. Does not block: the runner parks the lanes.
class Warp {
 public:
  // alive: bit i is set if lane i exists.
  void start(unsigned alive);
  void lane_ended(unsigned lane) { alive_ &= ~(1u << lane); }

  struct Request {
    WarpOp op = WarpOp::sync;
    unsigned mask = 0;
    std::uint64_t value = 0;
    int argument = 0;
    int width = 32;
    int line = 0;
  };
  // Notes that lane arrived. Returns whether all lanes of its mask are there, so that result() holds for all of them.
  // Ends the process if the operation is illegal.
  bool arrive(unsigned lane, const Request& request, const char* kernel);
  std::uint64_t result(unsigned lane) const { return results_[lane]; }
  // Lanes that wait for others, for the report of a deadlock, and the source line at which one waits.
  unsigned arrived() const { return arrived_; }
  int line(unsigned lane) const { return requests_[lane].line; }

 private:
  void answer(unsigned mask);
  std::uint64_t combine(WarpOp op, unsigned mask) const;
  // The lane that `lane` reads from in a shuffle.
  unsigned source_lane(unsigned lane) const;

  unsigned alive_ = 0;
  unsigned arrived_ = 0;
  Request requests_[32];
  std::uint64_t results_[32] = {};
};

}  // namespace cudasim
