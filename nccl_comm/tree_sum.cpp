#include "nccl_comm/tree_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "engine/backend/backend.h"
#include "engine/core/parallel.h"

namespace heddle::comm {
namespace {

// Elements added at a time: sums between the levels stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;
// Elements that are worth another thread.
constexpr std::int64_t kGrain = 8 * kBlock;
// Levels of additions below a root at most.
constexpr std::size_t kMaxLevels = 16;

Subtree left_of(const Subtree& node) { return {node.begin, node.size / 2}; }
Subtree right_of(const Subtree& node) { return {node.begin + node.size / 2, node.size / 2}; }

bool is_node(const Subtree& node) {
  return node.begin >= 0 && node.size >= 1 && std::has_single_bit(static_cast<std::uint64_t>(node.size)) &&
         node.begin % node.size == 0;
}

void check(const Subtree& root, std::span<const TreeTerm> terms, const Tensor& y) {
  HEDDLE_CHECK(is_node(root) && root.size <= (std::int64_t{1} << kMaxLevels),
               "tree_sum: no node of a tree: ", root.size, " leaves from ", root.begin, " on");
  HEDDLE_CHECK(y.defined() && y.dtype() == DType::f32, "tree_sum: y is ", y.dtype(), ", expected f32");
  std::int64_t next = root.begin;
  for (const TreeTerm& term : terms) {
    HEDDLE_CHECK(is_node(term.node) && term.node.begin == next, "tree_sum: a term is ", term.node.size, " leaves from ",
                 term.node.begin, " on, expected a node that begins at leaf ", next);
    next += term.node.size;
    HEDDLE_CHECK(term.sum.dtype() == DType::f32 && term.sum.device() == y.device() && term.sum.numel() == y.numel(),
                 "tree_sum: a term is ", term.sum.numel(), " ", term.sum.dtype(), " on ", term.sum.device(), ", y has ",
                 y.numel(), " on ", y.device());
  }
  HEDDLE_CHECK(next == root.begin + root.size, "tree_sum: the terms end at leaf ", next, ", the root at ",
               root.begin + root.size);
}

// One block of elements on the CPU, node after node.
class BlockSum {
 public:
  BlockSum(std::span<const TreeTerm> terms, std::span<const float* const> values) : terms_(terms), values_(values) {}

  // Elements [at, at + n) of the root's sum; y is n elements.
  void run(const Subtree& root, std::int64_t at, std::int64_t n, float* y) {
    next_ = 0;
    at_ = at;
    n_ = n;
    const float* const sum = visit(root, y, 0);
    if (sum != y) std::memcpy(y, sum, static_cast<std::size_t>(n) * sizeof(float));
  }

 private:
  // Where the node's sum is: in its term, or in `out`.
  const float* visit(const Subtree& node, float* out, std::size_t level) {
    if (terms_[next_].node == node) return values_[next_++] + at_;
    const float* const left = visit(left_of(node), out, level + 1);
    const float* const right = visit(right_of(node), scratch_[level].data(), level + 1);
    for (std::int64_t i = 0; i < n_; ++i) out[i] = left[i] + right[i];
    return out;
  }

  std::span<const TreeTerm> terms_;
  std::span<const float* const> values_;
  std::size_t next_ = 0;  // term
  std::int64_t at_ = 0, n_ = 0;
  std::array<std::array<float, kBlock>, kMaxLevels> scratch_;  // of the right halves, by level
};

void sum_on_cpu(const Subtree& root, std::span<const TreeTerm> terms, Tensor& y) {
  std::vector<const float*> values;
  for (const TreeTerm& term : terms) values.push_back(static_cast<const float*>(term.sum.raw_data()));
  auto* const to = static_cast<float*>(y.mutable_raw_data());
  // Elements do not meet each other, so the cut among threads has no part in the result.
  parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    BlockSum block(terms, values);
    for (std::int64_t at = begin; at < end; at += kBlock) block.run(root, at, std::min(kBlock, end - at), to + at);
  });
}

// The same on a device, a node at a time. `next` is the next term.
Tensor sum_on_device(const Subtree& node, std::span<const TreeTerm> terms, std::size_t& next, Tensor out) {
  if (terms[next].node == node) return terms[next++].sum;
  const Tensor left = sum_on_device(left_of(node), terms, next, out);
  const Subtree half = right_of(node);
  const bool is_term = terms[next].node == half;
  const Tensor right = sum_on_device(half, terms, next, is_term ? Tensor() : Tensor::empty_like(out));
  backend_for(out.device()).binary(BinaryOp::add, left, right, out);
  return out;
}

}  // namespace

std::vector<Subtree> subtrees_of(std::int64_t begin, std::int64_t end) {
  HEDDLE_CHECK(0 <= begin && begin <= end, "subtrees_of: leaves [", begin, ", ", end, ")");
  std::vector<Subtree> nodes;
  while (begin < end) {
    std::int64_t size = 1;
    while (begin % (2 * size) == 0 && begin + 2 * size <= end) size *= 2;
    nodes.push_back({begin, size});
    begin += size;
  }
  return nodes;
}

void tree_sum(const Subtree& root, std::span<const TreeTerm> terms, Tensor& y) {
  check(root, terms, y);
  if (y.numel() == 0) return;
  if (y.device().is_cpu()) return sum_on_cpu(root, terms, y);
  std::size_t next = 0;
  Tensor out = y.reshape({-1});
  std::vector<TreeTerm> flat(terms.begin(), terms.end());
  for (TreeTerm& term : flat) term.sum = term.sum.reshape({-1});
  const Tensor sum = sum_on_device(root, flat, next, out);
  if (!sum.same_memory(out)) out.copy_from(sum);
}

}  // namespace heddle::comm
