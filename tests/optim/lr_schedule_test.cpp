// The rates of each schedule against values worked out by hand.
#include "engine/optim/lr_schedule.h"

#include <cmath>
#include <limits>

#include "engine/core/error.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::optim;

TEST_CASE("a step schedule drops at its milestones, whatever epoch it is asked for first") {
  const LrSchedule schedule(
      {.kind = ScheduleKind::step, .learning_rate = 0.1, .milestones = {4}, .gamma = 0.1, .steps_per_epoch = 7});
  // Resumed after epoch 2 (from 0): epochs 3 and 4.
  CHECK(schedule.at_epoch(3) == Approx(0.1));
  CHECK(schedule.at_step(27) == Approx(0.1));
  CHECK(schedule.at_epoch(4) == Approx(0.01));
  CHECK(schedule.at_step(28) == Approx(0.01));
}

TEST_CASE("a step size drops every so many epochs") {
  const LrSchedule schedule({.kind = ScheduleKind::step, .learning_rate = 1.0, .step_size = 2, .gamma = 0.5});
  const std::vector<double> expected{1, 1, 0.5, 0.5, 0.25, 0.25, 0.125};
  for (std::size_t e = 0; e < expected.size(); ++e)
    CHECK(schedule.at_epoch(static_cast<std::int64_t>(e)) == Approx(expected[e]));
}

TEST_CASE("cosine goes from the peak through the middle to the minimum and stays there") {
  const LrSchedule schedule({.kind = ScheduleKind::cosine,
                             .learning_rate = 0.5,
                             .min_learning_rate = 0.1,
                             .total_epochs = 10,
                             .steps_per_epoch = 4});
  CHECK(schedule.at_step(0) == Approx(0.5));
  CHECK(schedule.at_step(20) == Approx(0.3));
  CHECK(schedule.at_step(10) == Approx(0.1 + 0.2 * (1 + std::sqrt(0.5))));
  CHECK(schedule.at_step(40) == Approx(0.1));
  CHECK(schedule.at_step(1000) == Approx(0.1));
}

TEST_CASE("warm-up rises in equal steps to the full rate") {
  const ScheduleOptions options{.learning_rate = 0.4, .warmup_epochs = 1.5, .total_epochs = 5, .steps_per_epoch = 2};
  const LrSchedule constant(options);
  CHECK(constant.at_step(0) == Approx(0.4 / 3));
  CHECK(constant.at_step(1) == Approx(0.8 / 3));
  CHECK(constant.at_step(2) == Approx(0.4));
  CHECK(constant.at_step(3) == Approx(0.4));
  ScheduleOptions with_cosine = options;
  with_cosine.kind = ScheduleKind::cosine;
  const LrSchedule cosine(with_cosine);
  CHECK(cosine.at_step(0) == Approx(0.4 / 3));
  CHECK(cosine.at_step(3) == Approx(0.4));  // the cosine begins where the warm-up ends
  CHECK(cosine.at_step(10) == Approx(0.0).margin(1e-12));
}

TEST_CASE("a schedule counts no further than 64 bits") {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_WITH(LrSchedule({.kind = ScheduleKind::cosine, .total_epochs = kMost, .steps_per_epoch = 2}),
                    Catch::Contains("64 bits"));
  const LrSchedule schedule({.steps_per_epoch = 1000});
  CHECK_THROWS_WITH(schedule.at_epoch(kMost / 999), Catch::Contains("1000 steps"));
  CHECK_THROWS_AS(schedule.at_epoch(-1), InvalidArgument);
}

TEST_CASE("a factor of a drop that is no number is refused for every kind of schedule") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(LrSchedule({.gamma = kNan}), Catch::Contains("gamma nan"));
}

TEST_CASE("schedule options out of range are refused with their values") {
  CHECK_THROWS_WITH(LrSchedule({.learning_rate = -1}), Catch::Contains("-1"));
  CHECK_THROWS_AS(LrSchedule({.kind = ScheduleKind::step}), InvalidArgument);
  CHECK_THROWS_AS(LrSchedule({.kind = ScheduleKind::step, .step_size = 1, .milestones = {3}}), InvalidArgument);
  CHECK_THROWS_AS(LrSchedule({.kind = ScheduleKind::step, .milestones = {3, 2}}), InvalidArgument);
  CHECK_THROWS_AS(LrSchedule({.kind = ScheduleKind::cosine, .warmup_epochs = 3, .total_epochs = 2}), InvalidArgument);
  CHECK_THROWS_WITH(schedule_from_name("cosin"), Catch::Contains("did you mean 'cosine'"));
  CHECK(schedule_from_name("step") == ScheduleKind::step);
}
