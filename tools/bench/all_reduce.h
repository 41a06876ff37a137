// Measures all-reduces: first whether every element of every rank is right, then time. Gives numbers; prints nothing.
#pragma once

#include <optional>
#include <string>

#include "engine/comm/communicator.h"
#include "engine/device/device_runtime.h"
#include "tools/bench/timing.h"

namespace heddle::tools::bench {

struct AllReduceCase {
  std::string backend;
  int ranks = 1;
  DType dtype = DType::f32;  // f32, bf16 or i64
  comm::ReduceOp op = comm::ReduceOp::sum;
  std::int64_t numel = 1;

  std::size_t nbytes() const { return static_cast<std::size_t>(numel) * size_of(dtype); }
};

struct AllReduceResult {
  AllReduceCase what;
  std::int64_t wrong = 0;        // elements, over all ranks and both checks
  std::string problem;           // the first of them
  std::optional<Timing> timing;  // of the rank that took longest, if all was right and calls were timed
  WorkCounts work;               // of one call on rank 0, on a device that counts

  // nbytes / median: what a caller sees.
  double algorithm_bytes_per_second() const;
  // The same times 2 (n - 1) / n, which every byte of n ranks has to cross a link at least: comparable with the speed
  // of a link whatever n is. Source: "Performance reported by NCCL tests", nccl-tests/doc/PERFORMANCE.md.
  double bus_bytes_per_second() const;
};

// What element i of a rank is before the call, a whole number that depends on all of its arguments, of either sign, and
// exact in the dtype; and what it must be after it: the exact result, rounded to the dtype once.
std::int64_t all_reduce_input(DType dtype, int rank, std::int64_t i, int round);
double all_reduce_expected(DType dtype, comm::ReduceOp op, int ranks, std::int64_t i, int round);

// All ranks call it with the same arguments and get the same result; memory is that of `device`. repeats 0: compare
// only. Blocks. Throws: CommError.
AllReduceResult measure_all_reduce(comm::Communicator& communicator, const AllReduceCase& what, Device device,
                                   int repeats);

}  // namespace heddle::tools::bench
