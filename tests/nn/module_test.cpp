// Names, order, flags and moves of modules; the layers themselves are tested in layers_test.cpp.
#include "engine/nn/module.h"

#include "tests/support/catch.h"

using namespace heddle;

namespace {

class Leaf final : public nn::Module {
 public:
  using nn::Module::forward;
  explicit Leaf(std::int64_t n) { weight_ = register_parameter("weight", {n}); }
  Variable forward(const Variable& x) override { return x; }
  std::string description() const override { return "Leaf"; }
  void register_again(const std::string& name) { register_parameter(name, {1}); }
  Variable weight_;

 protected:
  void reset_own_parameters(Philox& random) override {
    float* w = weight_.mutable_data().mutable_host_data<float>();
    for (std::int64_t i = 0; i < weight_.numel(); ++i) w[i] = random.uniform();
  }
};

class Tree final : public nn::Module {
 public:
  Tree() {
    bias_ = register_parameter("bias", {3});
    count_ = register_buffer("count", Tensor::zeros({1}));
    left = register_module("left", std::make_shared<Leaf>(2));
    right = register_module("right", std::make_shared<Leaf>(4));
    again_ = register_module("again", left);
  }
  std::string description() const override { return "Tree"; }
  std::shared_ptr<Leaf> left, right;

 private:
  Variable bias_, count_;
  std::shared_ptr<Leaf> again_;
};

}  // namespace

TEST_CASE("parameters are named by path, in order of registration, and a shared module counts once") {
  Tree tree;
  std::vector<std::string> names;
  for (const auto& p : tree.named_parameters()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"bias", "left.weight", "right.weight"});
  CHECK(tree.named_buffers().size() == 1);
  CHECK(tree.named_buffers()[0].name == "count");
  CHECK(tree.num_parameters() == 9);
}

TEST_CASE("training mode reaches all children") {
  Tree tree;
  CHECK(tree.right->is_training());
  tree.train(false);
  CHECK_FALSE(tree.is_training());
  CHECK_FALSE(tree.right->is_training());
}

TEST_CASE("parameters are drawn in order, the same for the same seed") {
  Tree a, b;
  Philox first(7), second(7);
  a.reset_parameters(first);
  b.reset_parameters(second);
  CHECK(a.left->weight_.data().to_vector<float>() == b.left->weight_.data().to_vector<float>());
  CHECK(a.left->weight_.data().to_vector<float>() != a.right->weight_.data().narrow(0, 2).to_vector<float>());
}

TEST_CASE("names that cannot be told apart in a path, or stand twice, are refused") {
  Leaf leaf(1);
  CHECK_THROWS_WITH(leaf.register_again("weight"), Catch::Contains("twice"));
  CHECK_THROWS_AS(leaf.register_again("a.b"), InvalidArgument);
  CHECK_THROWS_AS(leaf.register_again(""), InvalidArgument);
}

TEST_CASE("a module that overrides no forward says so instead of running forever") {
  Tree tree;
  CHECK_THROWS_WITH(tree.forward(Variable(Tensor::zeros({1}))), Catch::Contains("Tree") && Catch::Contains("forward"));
  // And again, since the guard must be taken back.
  CHECK_THROWS_AS(tree.forward(Variable(Tensor::zeros({1}))), InvalidArgument);
  Leaf leaf(1);
  const std::vector<Variable> two{Variable(Tensor::zeros({1})), Variable(Tensor::zeros({1}))};
  CHECK_THROWS_WITH(leaf.forward(two), Catch::Contains("2 were given"));
}
