// What a rank asks for in one call, for communicators that compare it between the ranks. Knows no transport.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/communicator.h"

namespace heddle::comm {

enum class Call : std::uint8_t { all_reduce, broadcast, all_gather, reduce_scatter, barrier };

// Where the tensors are; recorded: on a GPU, in a step that is recorded instead of done.
enum class Place : std::uint8_t { cpu, gpu, recorded };
inline Place place_of(Device device) noexcept { return device.is_cpu() ? Place::cpu : Place::gpu; }

// Goes between processes of one kind of machine as it lies in memory.
struct Request {
  Call call = Call::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;
  Place place = Place::cpu;
  std::int32_t root = 0;
  std::int64_t numel = 0;  // of the input
  // Where the tensors lie among those of make_exchanged(), if such memory has to be used alike by all ranks: 1 + byte,
  // 0 elsewhere.
  std::int64_t exchanged_input = 0, exchanged_output = 0;

  friend bool operator==(const Request&, const Request&) = default;
};

// What groups whose ranks meet on the host can do beside moving tensors: the part of a communicator of a GPU's library
// that finds who is late and who asks for something else.
class HostGroup {
 public:
  virtual ~HostGroup() = default;
  // Returns when all ranks ask for the same; moves nothing. Throws: CommError as a call does.
  virtual void agree(const Request& request, std::string_view what) = 0;
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
