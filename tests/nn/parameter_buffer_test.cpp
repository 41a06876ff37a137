// Places, padding, gradients and versions of the flat buffers.
#include "engine/nn/parameter_buffer.h"

#include <algorithm>
#include <functional>

#include "engine/autograd/node.h"
#include "engine/optim/sgd.h"
#include "tests/support/catch.h"

using namespace heddle;

namespace {

class Two final : public nn::Module {
 public:
  Two() {
    a = register_parameter("a", {2, 3});
    b = register_parameter("b", {5});
    a.mutable_data().copy_from(Tensor::from_values<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
    b.mutable_data().copy_from(Tensor::from_values<float>({7, 8, 9, 10, 11}, {5}));
  }
  std::string description() const override { return "Two"; }
  Variable a, b;
};

class Other final : public nn::Module {
 public:
  Other() {
    register_parameter("a", {3, 2});
    register_parameter("b", {5});
  }
  std::string description() const override { return "Other"; }
};

class Empty final : public nn::Module {
 public:
  std::string description() const override { return "Empty"; }
};

}  // namespace

TEST_CASE("parameters move into one buffer: 16-byte segments, zero padding, values kept") {
  Two model;
  nn::ParameterBuffer buffer(model);
  CHECK(buffer.data().to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 0, 0, 0});
  REQUIRE(buffer.segments().size() == 2);
  CHECK(buffer.segments()[1].name == "b");
  CHECK(buffer.segments()[1].begin == 8);
  CHECK(buffer.segments()[1].numel == 5);
  CHECK(buffer.segments()[1].end == 16);
  CHECK(buffer.gradients().numel() == 16);
  CHECK(buffer.tail().read().numel() == tail_slot::kCount);
  CHECK(buffer.gradients_with_tail().numel() == 16 + tail_slot::kCount);
  // The model's variables are the views.
  buffer.data().mutable_host_data<float>()[9] = 80;
  CHECK(model.b.data().to_vector<float>()[1] == 80);
  model.a.mutable_data().mutable_host_data<float>()[0] = -1;
  CHECK(buffer.data().to_vector<float>()[0] == -1);
}

TEST_CASE("gradients land in the second buffer, and those that no backward reached are zero-filled") {
  Two model;
  nn::ParameterBuffer buffer(model);
  buffer.gradients_with_tail().copy_from(Tensor::full({16 + tail_slot::kCount}, 3.0));
  buffer.zero_grad();
  CHECK(buffer.tail().read().to_vector<float>() == std::vector<float>(tail_slot::kCount, 0.f));
  CHECK(model.a.grad_is_fresh());
  // Only b gets a gradient.
  model.b.grad().copy_from(Tensor::full({5}, 2.0));
  buffer.finish_gradients();
  const std::vector<float> g = buffer.gradients().to_vector<float>();
  CHECK(std::vector<float>(g.begin(), g.begin() + 6) == std::vector<float>(6, 0.f));
  CHECK(std::vector<float>(g.begin() + 8, g.begin() + 13) == std::vector<float>(5, 2.f));
}

TEST_CASE("gradients move into other memory, with the tail that losses were given before, and are fresh") {
  Two model;
  nn::ParameterBuffer buffer(model);
  const std::vector<float> values = buffer.data().to_vector<float>();
  ops::LossStats given = buffer.tail();
  buffer.gradients_with_tail().copy_from(Tensor::full({16 + tail_slot::kCount}, 3.0));
  Tensor memory = Tensor::zeros({16 + tail_slot::kCount});
  buffer.move_gradients(memory);
  CHECK(buffer.gradients_with_tail().same_memory(memory));
  CHECK(buffer.data().to_vector<float>() == values);
  CHECK(model.a.grad_is_fresh());
  model.b.grad().copy_from(Tensor::full({5}, 2.0));
  given.tensor().copy_from(Tensor::full({tail_slot::kCount}, 4.0));
  buffer.finish_gradients();
  std::vector<float> expected(16 + tail_slot::kCount, 0.f);
  std::fill_n(expected.begin() + 8, 5, 2.f);
  std::fill_n(expected.begin() + 16, tail_slot::kCount, 4.f);
  CHECK(memory.to_vector<float>() == expected);
  Tensor small = Tensor::zeros({16});
  CHECK_THROWS_AS(buffer.move_gradients(small), InvalidArgument);
  nn::ParameterBuffer later(model);
  CHECK_THROWS_AS(buffer.move_gradients(memory), InvalidArgument);
}

TEST_CASE("a gradient that no step reaches is zero in every step, whatever somebody wrote there") {
  Two model;
  nn::ParameterBuffer buffer(model);
  const auto step = [&] {
    buffer.zero_grad();
    model.b.grad().copy_from(Tensor::full({5}, 2.0));
    buffer.finish_gradients();
    CHECK_FALSE(model.a.grad_is_fresh());
    CHECK(buffer.gradients().narrow(0, 6).to_vector<float>() == std::vector<float>(6, 0.f));
  };
  step();
  step();
  // What an exchange between ranks leaves there is the gradient until the next step.
  buffer.gradients().narrow(0, 6).copy_from(Tensor::full({6}, 3.0));
  CHECK(model.a.grad().to_vector<float>() == std::vector<float>(6, 3.f));
  step();
  model.a.grad().copy_from(Tensor::full({2, 3}, 5.0));
  step();
}

TEST_CASE("a parameter that is frozen later has no old gradient in the buffer") {
  Two model;
  nn::ParameterBuffer buffer(model);
  model.a.grad().copy_from(Tensor::full({2, 3}, 5.0));
  model.a.set_requires_grad(false);
  buffer.zero_grad();
  buffer.finish_gradients();
  CHECK(buffer.gradients().narrow(0, 6).to_vector<float>() == std::vector<float>(6, 0.f));
}

TEST_CASE("a change of the whole buffer is seen by values saved from its parts, a part's change by no neighbour") {
  Two model;
  nn::ParameterBuffer buffer(model);
  const SavedTensor a(model.a.data()), b(model.b.data());
  model.a.mutable_data().mutable_host_data<float>();
  CHECK_THROWS_AS(a.get("test"), Error);
  CHECK_NOTHROW(b.get("test"));
  buffer.mark_changed();
  CHECK_THROWS_AS(b.get("test"), Error);
}

TEST_CASE("a model is in one buffer at a time: the older one refuses to be used, and so does its optimiser") {
  Two model;
  nn::ParameterBuffer old(model);
  optim::Sgd sgd(old, 0.1);
  CHECK_NOTHROW(sgd.zero_grad());
  {
    nn::ParameterBuffer fresh(model);
    CHECK_NOTHROW(fresh.zero_grad());
    CHECK(fresh.data().to_vector<float>()[9] == 8);
  }
  for (const auto& use :
       {std::function<void()>([&] { sgd.zero_grad(); }), {[&] { sgd.step(); }}, {[&] { old.finish_gradients(); }}}) {
    CHECK_THROWS_WITH(use(), Catch::Contains("parameter 'a' (2,3) has left this buffer"));
  }
}

TEST_CASE("a replica's buffer has the original's values in one memory, and gradients of its own") {
  Two model, replica;
  nn::ParameterBuffer buffer(model);
  replica.a.mutable_data().fill_zero();
  nn::ParameterBuffer shared(replica, buffer);
  CHECK(replica.a.data().to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(replica.b.data().same_memory(model.b.data()));
  CHECK(shared.data().same_memory(buffer.data()));
  const SavedTensor saved(replica.b.data());
  buffer.data().mutable_host_data<float>()[9] = 80;
  CHECK(replica.b.data().to_vector<float>()[1] == 80);
  CHECK_THROWS_AS(saved.get("test"), Error);
  replica.b.grad().copy_from(Tensor::full({5}, 2.0));
  buffer.zero_grad();
  buffer.finish_gradients();
  shared.finish_gradients();
  CHECK(buffer.gradients().to_vector<float>() == std::vector<float>(16, 0.f));
  CHECK(shared.gradients().to_vector<float>()[12] == 2);
  CHECK_NOTHROW(shared.zero_grad());
  // Another kind of model, or the same one.
  Other other;
  CHECK_THROWS_WITH(nn::ParameterBuffer(other, buffer), Catch::Contains("'a' (3,2)") && Catch::Contains("'a' (2,3)"));
  CHECK_THROWS_WITH(nn::ParameterBuffer(model, buffer), Catch::Contains("is the original model"));
}

TEST_CASE("a model without parameters has no parameter buffer") {
  Empty model;
  CHECK_THROWS_WITH(nn::ParameterBuffer(model), Catch::Contains("Empty"));
}
