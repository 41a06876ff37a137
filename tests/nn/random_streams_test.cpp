// Dropout that draws by the step's number: what a recorded step replays.
#include "engine/nn/random_streams.h"

#include <set>

#include "engine/autograd/backward.h"
#include "engine/nn/dropout.h"
#include "engine/nn/sequential.h"
#include "tests/support/catch.h"

using namespace heddle;

namespace {

using Values = std::vector<float>;

Values pass(nn::Module& model) { return model.forward(Tensor::full({64}, 1)).data().to_vector<float>(); }

}  // namespace

TEST_CASE("with a counter the elements that a step drops depend on its number and on nothing before it") {
  nn::Sequential model({std::make_shared<nn::Dropout>(0.5, 1), std::make_shared<nn::Dropout>(0.5, 2)});
  std::int64_t counter = 0;
  {
    nn::RandomStreams streams(model, &counter);
    const auto step = [&](std::int64_t number) {
      counter = number;
      streams.begin_step();
      return pass(model);
    };
    const Values first = step(5), second = step(6);
    CHECK(first != second);
    // A layer that is used twice in a step drops other elements the second time.
    const Values again = pass(model);
    CHECK(again != second);
    CHECK(step(5) == first);
    CHECK(step(6) == second);
    // New seeds and places from a checkpoint leave the counter where it is.
    Philox random(3);
    model.reset_parameters(random);
    CHECK(step(5) != step(6));
  }
  // Without it the counter is not looked at.
  const auto fresh = [&](std::int64_t number) {
    counter = number;
    Philox random(3);
    model.reset_parameters(random);
    return pass(model);
  };
  CHECK(fresh(5) == fresh(6));
}

TEST_CASE("ranks drop other elements in the same step, also where their layers were made with one seed") {
  std::set<Values> masks;
  for (int rank = 0; rank < 4; ++rank) {
    nn::Dropout dropout(0.5, 7);
    std::int64_t counter = 3;
    nn::RandomStreams streams(dropout, &counter, rank);
    for (counter = 3; counter < 6; ++counter) {
      streams.begin_step();
      masks.insert(pass(dropout));
    }
  }
  CHECK(masks.size() == 12);
}

TEST_CASE("the backward pass of a step drops what its forward pass dropped") {
  nn::Dropout dropout(0.5, 9);
  std::int64_t counter = 0;
  nn::RandomStreams streams(dropout, &counter);
  for (; counter < 3; ++counter) {
    streams.begin_step();
    Variable x(Tensor::full({100}, 1), true);
    const Variable y = dropout.forward(x);
    backward(y, {}, {.gradient = Tensor::full({100}, 1)});
    CHECK(x.grad().to_vector<float>() == y.data().to_vector<float>());
  }
}
