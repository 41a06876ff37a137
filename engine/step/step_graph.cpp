#include "engine/step/step_graph.h"

namespace heddle::step {

StepGraph::StepGraph(Device device) {
  if (!device.is_cpu()) throw NotSupported(join_text("StepGraph: steps on ", device, " are not offered"));
}

void StepGraph::run(const StepKey&, const std::function<void()>& step) {
  HEDDLE_CHECK(step != nullptr, "StepGraph: the step is empty");
  step();
  ++runs_;
}

}  // namespace heddle::step
