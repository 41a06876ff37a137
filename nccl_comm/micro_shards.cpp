#include "nccl_comm/micro_shards.h"

#include <algorithm>

#include "engine/backend/backend.h"
#include "engine/core/parallel.h"

namespace heddle::comm {
namespace {

constexpr Subtree kRoot{0, kMicroShards};

std::vector<Subtree> subtrees_of_rank(int rank, int world_size) {
  const ShardRange range = shards_of_rank(rank, world_size);
  return subtrees_of(range.begin, range.end);
}

// Of every rank the same number is sent.
std::int64_t most_subtrees(int world_size) {
  std::size_t most = 1;
  for (int rank = 0; rank < world_size; ++rank) most = std::max(most, subtrees_of_rank(rank, world_size).size());
  return static_cast<std::int64_t>(most);
}

// Each module of a tree with its counterpart in a tree of the same kind.
void pair_modules(const nn::Module& model, nn::Module& replica,
                  std::vector<std::pair<const nn::Module*, nn::Module*>>& pairs) {
  const auto ours = model.named_children(), theirs = replica.named_children();
  HEDDLE_CHECK(ours.size() == theirs.size(), "micro-shards: a replica's ", replica.description(), " has ",
               theirs.size(), " parts, the model's has ", ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) pair_modules(*ours[i].second, *theirs[i].second, pairs);
  pairs.emplace_back(&model, &replica);
}

}  // namespace

ShardRange shards_of_rank(int rank, int world_size) noexcept {
  return {kMicroShards * rank / world_size, kMicroShards * (rank + 1) / world_size};
}

void for_each_shard(Device device, int n, const std::function<void(int)>& work) {
  if (!device.is_cpu()) {
    for (int i = 0; i < n; ++i) work(i);
    return;
  }
  parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
    const ThreadLimit one(1);
    for (std::int64_t i = begin; i < end; ++i) work(static_cast<int>(i));
  });
}

MicroShard::MicroShard(int number, std::shared_ptr<nn::Module> replica, nn::ParameterBuffer& original,
                       const std::int64_t* counter)
    : index(number),
      model(std::move(replica)),
      parameters(*model, original),
      random(*model, counter, number),
      buffers(*model) {}

MicroShards::MicroShards(nn::Module& model, nn::ParameterBuffer& parameters, const std::int64_t* counter,
                         const ModelFactory& make_replica, Communicator* communicator)
    : parameters_(parameters), buffers_(model), communicator_(communicator) {
  const int rank = communicator == nullptr ? 0 : communicator->rank();
  const int world_size = communicator == nullptr ? 1 : communicator->world_size();
  range_ = shards_of_rank(rank, world_size);
  subtrees_ = subtrees_of(range_.begin, range_.end);
  const auto model_streams = model.named_random_streams();
  for (int index = range_.begin; index < range_.end; ++index) {
    const std::shared_ptr<nn::Module> replica = make_replica();
    HEDDLE_CHECK(replica != nullptr && replica.get() != &model, "micro-shards: make_replica() returned no new model");
    replica->to(parameters.device());
    pair_modules(model, *replica, modules_);
    const auto streams = replica->named_random_streams();
    HEDDLE_CHECK(streams.size() == model_streams.size(), "micro-shards: a replica has ", streams.size(),
                 " random layers, the model ", model_streams.size());
    for (std::size_t i = 0; i < streams.size(); ++i) streams_.emplace_back(model_streams[i].second, streams[i].second);
    shards_.push_back(std::make_unique<MicroShard>(index, replica, parameters, counter));
    HEDDLE_CHECK(shards_.back()->buffers.numel() == buffers_.numel(), "micro-shards: a replica has ",
                 shards_.back()->buffers.numel(), " values in buffers, the model ", buffers_.numel());
  }
  if (alone()) return;
  rows_ = most_subtrees(world_size);
  const std::int64_t row = parameters.gradients_with_tail().numel() + buffers_.numel();
  sent_ = communicator->make_exchanged({rows_ * row}, DType::f32, parameters.device());
  gathered_ = communicator->make_exchanged({world_size * rows_ * row}, DType::f32, parameters.device());
}

void MicroShards::follow_model() {
  for (const auto& [own, replica] : streams_) replica->seed = own->seed;
  // From the whole to the parts, since train() changes those below too.
  for (auto it = modules_.rbegin(); it != modules_.rend(); ++it) {
    if (it->second->is_training() != it->first->is_training()) it->second->train(it->first->is_training());
  }
  const auto& wanted = parameters_.segments();
  for (const std::unique_ptr<MicroShard>& shard : shards_) {
    if (buffers_.numel() > 0) shard->buffers.data().copy_from(buffers_.data());
    const auto& segments = shard->parameters.segments();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const bool on = wanted[i].variable.requires_grad();
      Variable own = segments[i].variable;
      if (own.requires_grad() != on) own.set_requires_grad(on);
    }
  }
}

std::vector<TreeTerm> MicroShards::gradients_below(const Subtree& node) const {
  std::vector<TreeTerm> terms;
  for (std::int64_t leaf = node.begin; leaf < node.begin + node.size; ++leaf) {
    MicroShard& shard = *shards_[static_cast<std::size_t>(leaf - range_.begin)];
    terms.push_back({{leaf, 1}, shard.parameters.gradients_with_tail()});
  }
  return terms;
}

std::vector<TreeTerm> MicroShards::buffers_below(const Subtree& node) const {
  std::vector<TreeTerm> terms;
  for (std::int64_t leaf = node.begin; leaf < node.begin + node.size; ++leaf) {
    terms.push_back({{leaf, 1}, shards_[static_cast<std::size_t>(leaf - range_.begin)]->buffers.data()});
  }
  return terms;
}

Tensor MicroShards::gradients_of(Tensor& rows, std::int64_t i) const {
  const std::int64_t numel = parameters_.gradients().numel() + tail_slot::kCount;
  return rows.narrow(i * (numel + buffers_.numel()), numel);
}

Tensor MicroShards::buffers_of(Tensor& rows, std::int64_t i) const {
  const std::int64_t numel = parameters_.gradients().numel() + tail_slot::kCount;
  return rows.narrow(i * (numel + buffers_.numel()) + numel, buffers_.numel());
}

void MicroShards::compute(const std::function<void(MicroShard&)>& work) {
  follow_model();
  for_each_shard(parameters_.device(), range_.size(), [&](int i) {
    MicroShard& shard = *shards_[static_cast<std::size_t>(i)];
    shard.random.begin_step();
    shard.parameters.zero_grad();
    work(shard);
    // A micro-shard without images is added as zeros like any other, whoever has it.
    shard.parameters.finish_gradients();
  });
  if (alone()) return;
  for (std::size_t i = 0; i < subtrees_.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    Tensor gradients = gradients_of(sent_, row);
    tree_sum(subtrees_[i], gradients_below(subtrees_[i]), gradients);
    if (buffers_.numel() == 0) continue;
    Tensor buffers = buffers_of(sent_, row);
    tree_sum(subtrees_[i], buffers_below(subtrees_[i]), buffers);
  }
}

void MicroShards::exchange() {
  if (!alone()) communicator_->all_gather(sent_, gathered_, "gradients of micro-shards");
}

void MicroShards::finish() {
  // The sums are written behind the backs of the leaves and of the tail's owner, who are told that way that theirs are
  // no longer fresh.
  parameters_.finish_gradients();
  parameters_.tail().tensor();
  std::vector<TreeTerm> gradients, buffers;
  if (alone()) {
    gradients = gradients_below(kRoot);
    if (buffers_.numel() > 0) buffers = buffers_below(kRoot);
  } else {
    const int world_size = communicator_->world_size();
    for (int rank = 0; rank < world_size; ++rank) {
      std::int64_t row = rank * rows_;
      for (const Subtree& node : subtrees_of_rank(rank, world_size)) {
        gradients.push_back({node, gradients_of(gathered_, row)});
        if (buffers_.numel() > 0) buffers.push_back({node, buffers_of(gathered_, row)});
        ++row;
      }
    }
  }
  tree_sum(kRoot, gradients, parameters_.gradients_with_tail());
  if (buffers.empty()) return;
  Tensor& mean = buffers_.data();
  tree_sum(kRoot, buffers, mean);
  backend_for(mean.device()).unary(UnaryOp::mul_scalar, mean, 1.0 / kMicroShards, 0, mean);
}

}  // namespace heddle::comm
