// What a rank asks for in one call, for communicators that compare it between the ranks. Knows no transport.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/communicator.h"

namespace heddle::comm {

enum class Call : std::uint8_t { all_reduce, broadcast, all_gather, reduce_scatter, barrier };

// Goes between processes of one kind of machine as it lies in memory.
struct Request {
  Call call = Call::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;
  bool on_cpu = true;
  std::int32_t root = 0;
  std::int64_t numel = 0;  // of the input

  friend bool operator==(const Request&, const Request&) = default;
};

// "all_reduce of 8 f32 on the CPU (sum)".
std::string describe(const Request& request);
// The same with what is exchanged, if that is known: "... (bucket 2)".
std::string describe(const Request& request, std::string_view what);

// Both sides of the first difference from rank 0; empty if all ranks ask for the same.
std::string find_disagreement(const std::vector<Request>& by_rank);

// Begin of part `rank` of n elements cut into one part a rank: whole lines of the cache, so that ranks do not disturb
// each other. Part `ranks` begins at n.
std::int64_t part_begin(std::int64_t n, int rank, int ranks);

}  // namespace heddle::comm
