#include "nccl_comm/drift_monitor.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "engine/backend/backend.h"

namespace heddle::comm {
namespace {

// The counters that a training lives on; those behind them are the backend's own.
constexpr std::int64_t kSharedCounters = step_slot::kSkipped + 1;

// The hashes of tensors of one device, taken there, of all ranks: one rank's after the other's.
std::vector<std::int64_t> gather_hashes(Communicator& communicator, const std::vector<Tensor>& tensors) {
  const Device device = tensors.front().device();
  const auto n = static_cast<std::int64_t>(tensors.size());
  Tensor mine = Tensor::empty({n}, DType::i64, device);
  backend_for(device).hash(tensors, mine);
  Tensor all = Tensor::empty({n * communicator.world_size()}, DType::i64, device);
  communicator.all_gather(mine, all, "hashes of the replicas");
  return all.to_vector<std::int64_t>();
}

struct Named {
  std::vector<std::string> names;
  std::vector<Tensor> tensors;
};
// The parameters in each tensor, and the tensor.
Named list_parts(const std::vector<ReplicaTensor>& state) {
  Named list;
  for (const ReplicaTensor& item : state) {
    if (item.segments != nullptr) {
      for (const nn::ParameterSegment& segment : *item.segments) {
        list.names.push_back(join_text(item.name, " of '", segment.name, "'"));
        list.tensors.push_back(item.tensor.narrow(segment.begin, segment.numel));
      }
    }
    // Of a flat buffer too: the zeros between the parameters are not in their hashes.
    list.names.push_back(item.name);
    list.tensors.push_back(item.tensor);
  }
  return list;
}

// "rank 1 of 4", "ranks 1, 3 of 4": those whose hash is not the most frequent one; of equally frequent ones rank 0's.
std::string odd_ranks(const std::vector<std::int64_t>& hashes) {
  std::map<std::int64_t, int> count;
  for (const std::int64_t hash : hashes) ++count[hash];
  std::int64_t usual = hashes[0];
  for (const auto& [hash, ranks] : count) {
    if (ranks > count[usual]) usual = hash;
  }
  std::string list;
  int odd = 0;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
    if (hashes[rank] != usual) list += join_text(odd++ == 0 ? "" : ", ", rank);
  }
  return join_text(odd == 1 ? "rank " : "ranks ", list, " of ", hashes.size(), odd == 1 ? " differs" : " differ");
}

}  // namespace

std::vector<ReplicaTensor> replica_state(optim::Optimizer& optimizer) {
  nn::ParameterBuffer& parameters = optimizer.parameters();
  std::vector<ReplicaTensor> state{{"weights", parameters.data(), &parameters.segments()}};
  for (const auto& [name, tensor] : optimizer.state_tensors()) {
    state.push_back({name, tensor, &parameters.segments()});
  }
  state.push_back({"counters of the training", optimizer.state().counters().narrow(0, kSharedCounters)});
  return state;
}

std::vector<ReplicaTensor> replica_buffers(const nn::Module& model) {
  std::vector<ReplicaTensor> buffers;
  for (const nn::NamedVariable& b : model.named_buffers()) {
    buffers.push_back({join_text("buffer '", b.name, "'"), b.variable.data()});
  }
  return buffers;
}

std::string compare_replicas(Communicator& communicator, const std::vector<ReplicaTensor>& state) {
  if (state.empty() || communicator.world_size() == 1) return {};
  const auto ranks = static_cast<std::size_t>(communicator.world_size());
  std::vector<Tensor> tensors;
  for (const ReplicaTensor& item : state) tensors.push_back(item.tensor);
  const std::vector<std::int64_t> hashes = gather_hashes(communicator, tensors);
  const auto n = static_cast<std::ptrdiff_t>(state.size());
  // Every rank's are those of the rank before.
  if (std::equal(hashes.begin() + n, hashes.end(), hashes.begin())) return {};
  const Named parts = list_parts(state);
  const std::vector<std::int64_t> all = gather_hashes(communicator, parts.tensors);
  for (std::size_t i = 0; i < parts.names.size(); ++i) {
    std::vector<std::int64_t> of_ranks;
    for (std::size_t rank = 0; rank < ranks; ++rank) of_ranks.push_back(all[rank * parts.names.size() + i]);
    if (std::equal(of_ranks.begin() + 1, of_ranks.end(), of_ranks.begin())) continue;
    return join_text(parts.names[i], ": ", odd_ranks(of_ranks), " from ", ranks == 2 ? "rank 0" : "the others");
  }
  return "the state of the training changed while it was compared";
}

}  // namespace heddle::comm
