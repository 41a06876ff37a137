#include "nccl_comm/exchange.h"

#include <algorithm>

namespace heddle::comm {
namespace {

const char* name_of(Call call) {
  switch (call) {
    case Call::all_reduce: return "all_reduce";
    case Call::broadcast: return "broadcast";
    case Call::all_gather: return "all_gather";
    case Call::reduce_scatter: return "reduce_scatter";
    case Call::barrier: return "barrier";
  }
  return "";
}

std::string describe_exchanged(std::int64_t place) {
  return place == 0 ? "other memory" : join_text("byte ", place - 1, " of exchanged memory");
}

}  // namespace

std::string describe(const Request& request) {
  if (request.call == Call::barrier) return "barrier";
  std::string text = join_text(name_of(request.call), " of ", request.numel, " ", request.dtype, " on ",
                               request.place == Place::cpu ? "the CPU" : "a GPU");
  if (request.call == Call::broadcast) text += join_text(" from rank ", request.root);
  if (request.call == Call::all_reduce || request.call == Call::reduce_scatter) {
    text += join_text(" (", comm::name_of(request.op), ")");
  }
  if (request.exchanged_input != 0 || request.exchanged_output != 0) {
    text += " at " + describe_exchanged(request.exchanged_output);
    if (request.exchanged_input != request.exchanged_output) {
      text += " from " + describe_exchanged(request.exchanged_input);
    }
  }
  if (request.place == Place::recorded) text += " in a recorded step";
  return text;
}

std::string describe(const Request& request, std::string_view what) {
  return what.empty() ? describe(request) : join_text(describe(request), " (", what, ")");
}

std::string find_disagreement(const std::vector<Request>& by_rank) {
  for (std::size_t r = 1; r < by_rank.size(); ++r) {
    if (by_rank[0] == by_rank[r]) continue;
    return join_text("the ranks disagree: rank 0 calls ", describe(by_rank[0]), ", rank ", r, " calls ",
                     describe(by_rank[r]));
  }
  return {};
}

std::int64_t part_begin(std::int64_t n, int rank, int ranks) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t lines = (n + kLine - 1) / kLine;
  return std::min(n, lines * rank / ranks * kLine);
}

}  // namespace heddle::comm
