// Reading the records of updates; on the CPU they are there at once.
#include "engine/step/status_block.h"

#include "engine/backend/backend.h"
#include "tests/support/catch.h"

using namespace heddle;

namespace {

// One update of four weights, whose record has this loss.
class Training {
 public:
  void update(float loss) {
    tensors_.tail.mutable_host_data<float>()[tail_slot::kLossSum] = loss;
    backend_for(Device::cpu()).sgd_update(tensors_, {&range_, 1}, {}, state);
  }
  StepState state{Device::cpu()};

 private:
  UpdateTensors tensors_{
      .weights = Tensor::zeros({4}), .gradients = Tensor::zeros({4}), .tail = Tensor::zeros({tail_slot::kCount})};
  SgdRange range_{0, 4, {}};
};

}  // namespace

TEST_CASE("records come in order, once, from where the training was") {
  Training training;
  training.update(-1);
  step::StatusReader status(training.state);
  CHECK_FALSE(status.next().has_value());
  CHECK_FALSE(status.next_or_wait().has_value());
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 3; ++i) training.update(static_cast<float>(3 * round + i));
    status.submitted(3);
    CHECK(status.queued() == 3);
    for (int i = 0; i < 3; ++i) {
      const auto record = status.next();
      REQUIRE(record.has_value());
      CHECK(record->loss_sum == static_cast<float>(3 * round + i));
      CHECK(record->step == 3 * round + i + 2);
    }
    CHECK(status.queued() == 0);
    CHECK_FALSE(status.next(8).has_value());
  }
}

TEST_CASE("a reader refuses more steps than may be queued") {
  Training training;
  CHECK_THROWS_AS(step::StatusReader(training.state, {.max_queued = 0}), InvalidArgument);
  CHECK_THROWS_AS(step::StatusReader(training.state, {.max_queued = 33}), InvalidArgument);
  step::StatusReader status(training.state, {.max_queued = 4});
  for (int i = 0; i < 5; ++i) training.update(0);
  status.submitted(4);
  CHECK_THROWS_WITH(status.submitted(), Catch::Contains("at most 4"));
}

TEST_CASE("an update that was promised and never queued is an error, not a wait for ever") {
  Training training;
  step::StatusReader status(training.state, {.max_queued = 2});
  status.submitted();
  // There is room for another step, so nobody waits.
  CHECK_FALSE(status.next(1).has_value());
  CHECK_THROWS_WITH(status.next_or_wait(), Catch::Contains("update 1") && Catch::Contains("no record"));
}
