#include "engine/autograd/backward.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/autograd/variable_state.h"

namespace heddle {
namespace {
std::atomic<std::uint64_t> next_pass{1};
}

// One run over the graph. Nodes are met by a depth-first search and run by descending age: a node is always younger
// than the nodes that it used, so all contributions to a value have arrived when its producer runs.
class BackwardPass {
 public:
  BackwardPass(const LeafReadyHook& leaf_ready, const BackwardOptions& options)
      : leaf_ready_(leaf_ready), options_(options), id_(next_pass.fetch_add(1, std::memory_order_relaxed)) {}

  void run(const Variable& start) {
    collect(start.grad_node());
    std::sort(order_.begin(), order_.end(), [](const auto& a, const auto& b) { return a->sequence_ > b->sequence_; });
    const auto output = static_cast<std::size_t>(start.output_index());
    GradSlot& first = start.grad_node()->slots_[output];
    ++first.consumers;  // the start itself, so that no later consumer believes to be the only one
    first.grad = options_.gradient;
    first.one = !options_.gradient.defined();
    first.fresh = false;
    try {
      for (const std::shared_ptr<Node>& node : order_) run_node(*node);
    } catch (...) {
      for (const std::shared_ptr<Node>& node : order_) reset_slots(*node);
      throw;
    }
  }

 private:
  void collect(const std::shared_ptr<Node>& start) {
    std::vector<std::shared_ptr<Node>> stack;
    const auto meet = [&](const std::shared_ptr<Node>& node) {
      if (node->visited_ == id_) return;
      node->visited_ = id_;
      if (node->released_) {
        throw Error(join_text("backward of ", node->name(),
                              ": its saved values were released by an earlier backward(); set retain_graph there"));
      }
      reset_slots(*node);
      stack.push_back(node);
    };
    meet(start);
    while (!stack.empty()) {
      const std::shared_ptr<Node> node = std::move(stack.back());
      stack.pop_back();
      for (const Edge& edge : node->inputs_) {
        if (edge.node != nullptr) {
          meet(edge.node);
          ++edge.node->slots_[static_cast<std::size_t>(edge.output_index)].consumers;
        } else if (edge.leaf != nullptr) {
          if (edge.leaf->visited != id_) {
            edge.leaf->visited = id_;
            edge.leaf->slot.pending = 0;
          }
          ++edge.leaf->slot.pending;
        }
      }
      order_.push_back(node);
    }
  }

  void run_node(Node& node) {
    const bool reached =
        std::any_of(node.slots_.begin(), node.slots_.end(), [](const GradSlot& s) { return !s.fresh; });
    if (reached) {
      BackwardContext context(node);
      node.backward(context);
    }
    reset_slots(node);
    if (!options_.retain_graph) {
      node.release();
      node.released_ = true;
    }
    for (const Edge& edge : node.inputs_) {
      if (edge.leaf == nullptr || --edge.leaf->slot.pending != 0) continue;
      if (!leaf_ready_) continue;
      Variable leaf;
      leaf.state_ = edge.leaf;
      leaf_ready_(leaf);
    }
  }

  static void reset_slots(Node& node) {
    for (GradSlot& slot : node.slots_) slot = GradSlot{};
  }

  const LeafReadyHook& leaf_ready_;
  const BackwardOptions& options_;
  std::uint64_t id_;
  std::vector<std::shared_ptr<Node>> order_;
};

void backward(const Variable& start, const LeafReadyHook& leaf_ready, const BackwardOptions& options) {
  HEDDLE_CHECK(start.defined(), "backward of an undefined variable");
  if (options.create_graph) {
    throw NotSupported("backward: second-order gradients (create_graph) are not offered; gradients carry no history");
  }
  HEDDLE_CHECK(start.requires_grad(), "backward: no gradient is wanted: nothing that led to this value of shape ",
               start.shape(), " requires one");
  HEDDLE_CHECK(!start.is_leaf(), "backward of a leaf: it is not the result of an op");
  if (options.gradient.defined()) {
    const Tensor& gradient = options.gradient;
    HEDDLE_CHECK(
        gradient.shape() == start.shape() && gradient.dtype() == start.dtype() && gradient.device() == start.device(),
        "backward: start has shape ", start.shape(), " ", start.dtype(), " on ", start.device(),
        ", the given gradient ", gradient.shape(), " ", gradient.dtype(), " on ", gradient.device());
  } else {
    HEDDLE_CHECK(start.numel() == 1, "backward: the loss must have one element, this one has shape ", start.shape(),
                 "; reduce it or give a gradient");
  }
  BackwardPass(leaf_ready, options).run(start);
}

}  // namespace heddle
