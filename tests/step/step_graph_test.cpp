// On the CPU a step is a call.
#include "engine/step/step_graph.h"

#include "tests/support/catch.h"

using namespace heddle;

TEST_CASE("the CPU runs the step each time, and an exception of the step comes through") {
  step::StepGraph graph(Device::cpu());
  int calls = 0;
  for (int i = 0; i < 3; ++i) graph.run({.input = {256, 28, 28, 1}}, [&] { ++calls; });
  CHECK(calls == 3);
  CHECK(graph.runs() == 3);
  CHECK_THROWS_AS(graph.run({}, [] { throw IoError("data", "is gone"); }), IoError);
  CHECK(graph.runs() == 3);
  CHECK_THROWS_AS(graph.run({}, nullptr), InvalidArgument);
}

TEST_CASE("the CPU records nothing, whatever is asked for") {
  step::StepGraph graph(Device::cpu(), {.steps_per_launch = 4});
  CHECK(!graph.records());
  int calls = 0;
  std::int64_t left = 6;
  while (left > 0)
    left -= graph.run(
        {}, [&] { ++calls; }, left);
  CHECK(calls == 6);
  CHECK(graph.memory().reserved_nbytes == 0);
  CHECK_THROWS_AS(step::StepGraph(Device::cpu(), {.max_keys = 0}), InvalidArgument);
}
