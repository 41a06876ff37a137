// Sums in the order of a tree: whoever adds which part, the bits are those of the tree, which the same numbers added in
// another order do not give.
#include "nccl_comm/tree_sum.h"

#include <cmath>
#include <limits>

#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "nccl_comm/micro_shards.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"

using namespace heddle;
using comm::Subtree;
using comm::TreeTerm;

namespace {

constexpr int kLeaves = comm::kMicroShards;

// Of both signs and many magnitudes, so that nearly every addition rounds.
std::vector<std::vector<float>> make_leaves(std::int64_t n) {
  Philox random(11);
  std::vector<std::vector<float>> leaves(kLeaves);
  for (std::vector<float>& leaf : leaves) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto mantissa = static_cast<float>(random.below(1U << 23)) + 1.0f;
      const float value = std::ldexp(mantissa, static_cast<int>(random.below(12)) - 23);
      leaf.push_back(random.below(2) == 0 ? value : -value);
    }
  }
  return leaves;
}

// Written out, as the definition has it.
std::vector<float> sum_of_tree(const std::vector<std::vector<float>>& x) {
  std::vector<float> sums;
  for (std::size_t i = 0; i < x[0].size(); ++i) {
    const float left = (x[0][i] + x[1][i]) + (x[2][i] + x[3][i]);
    const float right = (x[4][i] + x[5][i]) + (x[6][i] + x[7][i]);
    sums.push_back(left + right);
  }
  return sums;
}

Tensor tensor_of(const std::vector<float>& values, Device device) {
  return Tensor::from_values(values, {static_cast<std::int64_t>(values.size())}, device);
}

// Each rank's sums of its subtrees, and then the sum of all.
std::vector<float> sum_of_ranks(const std::vector<std::vector<float>>& leaves, int ranks, Device device) {
  std::vector<TreeTerm> sums;
  for (int rank = 0; rank < ranks; ++rank) {
    const comm::ShardRange range = comm::shards_of_rank(rank, ranks);
    for (const Subtree& node : comm::subtrees_of(range.begin, range.end)) {
      std::vector<TreeTerm> terms;
      for (std::int64_t leaf = node.begin; leaf < node.begin + node.size; ++leaf) {
        terms.push_back({{leaf, 1}, tensor_of(leaves[static_cast<std::size_t>(leaf)], device)});
      }
      Tensor sum = Tensor::empty(terms[0].sum.shape(), DType::f32, device);
      comm::tree_sum(node, terms, sum);
      sums.push_back({node, sum});
    }
  }
  Tensor total = Tensor::empty(sums[0].sum.shape(), DType::f32, device);
  comm::tree_sum({0, kLeaves}, sums, total);
  return total.to_vector<float>();
}

// What an all_reduce gives: each rank adds up what it has, then the ranks are added in their order.
std::vector<float> sum_in_rank_order(const std::vector<std::vector<float>>& leaves, int ranks) {
  std::vector<float> total(leaves[0].size(), 0.0f);
  for (int rank = 0; rank < ranks; ++rank) {
    const comm::ShardRange range = comm::shards_of_rank(rank, ranks);
    for (std::size_t i = 0; i < total.size(); ++i) {
      float own = 0.0f;
      for (int leaf = range.begin; leaf < range.end; ++leaf) own += leaves[static_cast<std::size_t>(leaf)][i];
      total[i] += own;
    }
  }
  return total;
}

}  // namespace

TEST_CASE("a range of leaves is the fewest subtrees") {
  using Nodes = std::vector<Subtree>;
  CHECK(comm::subtrees_of(0, 8) == Nodes{{0, 8}});
  CHECK(comm::subtrees_of(4, 8) == Nodes{{4, 4}});
  // Three ranks.
  CHECK(comm::subtrees_of(0, 2) == Nodes{{0, 2}});
  CHECK(comm::subtrees_of(2, 5) == Nodes{{2, 2}, {4, 1}});
  CHECK(comm::subtrees_of(5, 8) == Nodes{{5, 1}, {6, 2}});
  CHECK(comm::subtrees_of(1, 7) == Nodes{{1, 1}, {2, 2}, {4, 2}, {6, 1}});
  CHECK(comm::subtrees_of(3, 3).empty());
  CHECK_THROWS_AS(comm::subtrees_of(3, 2), InvalidArgument);
  CHECK_THROWS_AS(comm::subtrees_of(-1, 2), InvalidArgument);
}

TEST_CASE("the micro-shards of the ranks are all of them, once and in order, and nearly as many for each") {
  for (int ranks = 1; ranks <= 20; ++ranks) {
    CAPTURE(ranks);
    int next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const comm::ShardRange range = comm::shards_of_rank(rank, ranks);
      REQUIRE(range.begin == next);
      REQUIRE(range.size() >= kLeaves / ranks);
      REQUIRE(range.size() <= (kLeaves + ranks - 1) / ranks);
      next = range.end;
    }
    CHECK(next == kLeaves);
  }
}

TEST_CASE("any number of ranks adds in the order of the tree, bit for bit") {
  for (const Device device : testing::test_devices()) {
    for (const std::int64_t n : {1, 4, 1023, 5000}) {
      const std::vector<std::vector<float>> leaves = make_leaves(n);
      const std::vector<float> wanted = sum_of_tree(leaves);
      for (int ranks = 1; ranks <= 9; ++ranks) {
        CAPTURE(device.to_string(), n, ranks);
        const bool same = sum_of_ranks(leaves, ranks, device) == wanted;
        CHECK(same);
        // These numbers would show another order.
        if (n == 5000) {
          const bool rank_order_shows = sum_in_rank_order(leaves, ranks) != wanted;
          CHECK(rank_order_shows);
        }
      }
    }
  }
}

TEST_CASE("a sum does not depend on the number of threads") {
  const std::vector<std::vector<float>> leaves = make_leaves(100'003);
  const std::vector<float> wanted = sum_of_tree(leaves);
  for (const int threads : {1, 2, 3, 7}) {
    CAPTURE(threads);
    const ThreadLimit limit(threads);
    const bool same = sum_of_ranks(leaves, 3, Device::cpu()) == wanted;
    CHECK(same);
  }
}

TEST_CASE("zeros are added like anything else, and NaN and infinity stay") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> leaves(kLeaves, std::vector<float>(4, 0.0f));
  leaves[3] = {-0.0f, kInf, 1.0f, std::nanf("")};
  leaves[6] = {-0.0f, 1.0f, -kInf, 2.0f};
  for (int ranks = 1; ranks <= 9; ++ranks) {
    CAPTURE(ranks);
    const std::vector<float> sum = sum_of_ranks(leaves, ranks, Device::cpu());
    CHECK(!std::signbit(sum[0]));
    CHECK(sum[1] == kInf);
    CHECK(sum[2] == -kInf);
    CHECK(std::isnan(sum[3]));
  }
}

TEST_CASE("terms that are not the leaves of the root are refused") {
  Tensor y = Tensor::zeros({4});
  const Tensor x = Tensor::zeros({4});
  using Terms = std::vector<TreeTerm>;
  const auto refused = [&](const Subtree& root, const Terms& terms, const std::string& reason) {
    CHECK_THROWS_WITH(comm::tree_sum(root, terms, y), Catch::Contains(reason));
  };
  refused({0, 2}, Terms{{{0, 1}, x}}, "the terms end at leaf 1, the root at 2");
  refused({0, 2}, Terms{{{0, 1}, x}, {{2, 1}, x}}, "begins at leaf 1");
  refused({0, 4}, Terms{{{0, 1}, x}, {{1, 2}, x}, {{3, 1}, x}}, "begins at leaf 1");
  refused({0, 1}, Terms{{{0, 2}, x}}, "the terms end at leaf 2");
  refused({0, 3}, Terms{{{0, 1}, x}}, "no node of a tree");
  refused({0, 1}, Terms{{{0, 1}, Tensor::zeros({5})}}, "a term is 5 f32");
  refused({0, 1}, Terms{{{0, 1}, Tensor::zeros({4}, DType::i64)}}, "a term is 4 i64");
  Tensor wrong = Tensor::zeros({4}, DType::i64);
  CHECK_THROWS_WITH(comm::tree_sum({0, 1}, Terms{{{0, 1}, x}}, wrong), Catch::Contains("y is i64"));
  // A term that is the whole root is copied.
  const Tensor ones = Tensor::full({4}, 1.0);
  comm::tree_sum({4, 4}, Terms{{{4, 4}, ones}}, y);
  CHECK(y.to_vector<float>() == std::vector<float>(4, 1.0f));
}
