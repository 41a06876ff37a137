// Sums whose rounding does not depend on who adds: the terms are the leaves of a fixed binary tree, and the sum of a
// node is that of its left half plus that of its right half, whoever has added up which part of it. Used for gradients
// of micro-shards; knows no ranks and no model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/tensor/tensor.h>

namespace heddle::comm {

// A node of the tree: leaves [begin, begin + size). size is a power of two that divides begin.
struct Subtree {
  std::int64_t begin = 0;
  std::int64_t size = 1;
  friend bool operator==(const Subtree&, const Subtree&) = default;
};

// The fewest nodes that together are leaves [begin, end), from left to right; none if it is empty.
// Throws: InvalidArgument unless 0 <= begin <= end.
std::vector<Subtree> subtrees_of(std::int64_t begin, std::int64_t end);

// The sum of a node that is known already; a leaf is its own.
struct TreeTerm {
  Subtree node;
  Tensor sum;  // f32
};

// y becomes the sum of the node `root`. terms: nodes below it (or itself), from left to right, that together are its
// leaves. All tensors are f32 on y's device with as many elements as y, which none of them may overlap. On a GPU it is
// queued, with y.numel() elements of temporary memory a level of the tree at most; on the CPU it is one pass over the
// terms, and the result does not depend on threads. Throws: InvalidArgument if the terms are not the root's leaves or a
// tensor does not fit.
void tree_sum(const Subtree& root, std::span<const TreeTerm> terms, Tensor& y);

}  // namespace heddle::comm
