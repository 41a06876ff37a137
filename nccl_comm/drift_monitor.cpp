#include "nccl_comm/drift_monitor.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "nccl_comm/bit_hash.h"

namespace heddle::comm {
namespace {

// The counters that a training lives on; those behind them are the backend's own.
constexpr std::int64_t kSharedCounters = step_slot::kSkipped + 1;

struct NamedHash {
  std::string name;
  std::uint64_t hash;
};

std::uint64_t hash_all(const std::vector<ReplicaTensor>& state) {
  std::uint64_t total = 0;
  for (const ReplicaTensor& item : state) {
    const Tensor host = item.tensor.to(Device::cpu());
    total = join_hashes(total, hash_bits(host.raw_data(), host.nbytes()));
  }
  return total;
}

std::vector<NamedHash> hash_each(const std::vector<ReplicaTensor>& state) {
  std::vector<NamedHash> hashes;
  for (const ReplicaTensor& item : state) {
    const Tensor host = item.tensor.to(Device::cpu());
    if (item.segments != nullptr) {
      for (const nn::ParameterSegment& segment : *item.segments) {
        const Tensor part = host.narrow(segment.begin, segment.numel);
        hashes.push_back({join_text(item.name, " of '", segment.name, "'"), hash_bits(part.raw_data(), part.nbytes())});
      }
    }
    // Of a flat buffer too: the zeros between the parameters are not in their hashes.
    hashes.push_back({item.name, hash_bits(host.raw_data(), host.nbytes())});
  }
  return hashes;
}

// The values of all ranks, one rank's after the other's.
std::vector<std::int64_t> gather(Communicator& communicator, const std::vector<std::int64_t>& values, Device device) {
  const auto n = static_cast<std::int64_t>(values.size());
  Tensor all = Tensor::empty({n * communicator.world_size()}, DType::i64, device);
  communicator.all_gather(Tensor::from_values(values, {n}, device), all, "hashes of the replicas");
  return all.to_vector<std::int64_t>();
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
  const Device device = state.front().tensor.device();
  const std::vector<std::int64_t> totals = gather(communicator, {static_cast<std::int64_t>(hash_all(state))}, device);
  if (std::equal(totals.begin() + 1, totals.end(), totals.begin())) return {};
  const std::vector<NamedHash> mine = hash_each(state);
  std::vector<std::int64_t> hashes;
  for (const NamedHash& item : mine) hashes.push_back(static_cast<std::int64_t>(item.hash));
  const std::vector<std::int64_t> all = gather(communicator, hashes, device);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::vector<std::int64_t> of_ranks;
    for (std::size_t rank = 0; rank < totals.size(); ++rank) of_ranks.push_back(all[rank * mine.size() + i]);
    if (std::equal(of_ranks.begin() + 1, of_ranks.end(), of_ranks.begin())) continue;
    return join_text(mine[i].name, ": ", odd_ranks(of_ranks), " from ",
                     communicator.world_size() == 2 ? "rank 0" : "the others");
  }
  return join_text("the state of the training: ", odd_ranks(totals), " from the others");
}

}  // namespace heddle::comm
