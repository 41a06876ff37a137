// Runs one training step. A caller gives the step as a function and a key that says which step it is; devices that can
// record a step (DESIGN: a captured step is a library feature) replay it by key; the CPU calls it each time.
#pragma once

#include <cstdint>
#include <functional>

#include "../core/shape.h"
#include "../device/device.h"

namespace heddle::step {

// Two calls with equal keys do the same work on tensors of the same shapes.
struct StepKey {
  Shape input;             // the batch
  std::uint32_t kind = 0;  // the caller's own number: training, evaluation, ...
  friend bool operator==(const StepKey&, const StepKey&) = default;
};

class StepGraph {
 public:
  // Throws: NotSupported for a device without a way to run steps (all but the CPU in this version).
  explicit StepGraph(Device device);

  // Calls step. Throws: what step throws.
  void run(const StepKey& key, const std::function<void()>& step);
  // Calls of run() so far that finished.
  std::int64_t runs() const noexcept { return runs_; }

 private:
  std::int64_t runs_ = 0;
};

}  // namespace heddle::step
