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

TEST_CASE("a device that steps cannot run on is refused") {
  CHECK_THROWS_AS(step::StepGraph(Device::cuda(0)), NotSupported);
}
