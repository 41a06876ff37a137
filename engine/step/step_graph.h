// Runs training steps. A caller gives a step as a function and a key that says which step it is. A device that can
// record a step (a GPU) calls the function the first time, records it into a graph the second time, and from then on
// launches the graph: the host does next to nothing for a step. The CPU calls the function each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "../core/shape.h"
#include "../device/caching_allocator.h"
#include "../device/device_runtime.h"

namespace heddle::step {

// Two calls with equal keys do the same work on tensors of the same shapes.
struct StepKey {
  Shape input;             // the batch
  std::uint32_t kind = 0;  // the caller's own number: training, evaluation, ...
  friend bool operator==(const StepKey&, const StepKey&) = default;
};

struct StepGraphOptions {
  // False: the function is called each time, as on the CPU; for debugging.
  bool enabled = true;
  // Graphs are kept for so many keys; one more replaces the one that was not used for longest.
  std::size_t max_keys = 8;
  // So many steps go into one launch where the caller wants that many: for models whose step is shorter than a launch.
  std::int64_t steps_per_launch = 1;
};

// What a recorded step may do:
// - Its host code runs when it is called and when it is recorded, not when the graph is launched. What changes from
//   step to step (learning rate, position in the data) must be read from device memory.
// - It must not wait for the device, copy to or from ordinary host memory, or look at results on the host.
// - Tensors from outside that it uses must stay alive as long as the StepGraph, or until clear().
// - Tensors that it makes live in memory that all graphs of one StepGraph share and eager tensors never get. Those that
//   are kept outside hold the result of the latest step of their key until the next run of any key.
// All runs must be made on one stream, by one thread at a time.
class StepGraph {
 public:
  explicit StepGraph(Device device, const StepGraphOptions& options = {});
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Does one step, or steps_per_launch of them in one launch if at least so many are wanted and the key has been run
  // before. Returns how many were done. On a GPU it returns before they are done.
  // Throws: what step throws; DeviceError if the step cannot be recorded. The device is usable afterwards, and the next
  // run of the key records again.
  std::int64_t run(const StepKey& key, const std::function<void()>& step, std::int64_t wanted = 1);
  // What one step of the key consists of on the device; nothing before it was recorded.
  std::optional<GraphSize> recorded_size(const StepKey& key) const;
  // Steps done so far.
  std::int64_t runs() const noexcept { return runs_; }
  // Whether steps are recorded on this device.
  bool records() const noexcept { return recorder_ != nullptr; }
  // Forgets all graphs, after their work is done, and gives their memory back.
  void clear();
  // Memory that the graphs share; all zero where nothing is recorded.
  AllocatorStats memory() const;

 private:
  struct Entry {
    StepKey key;
    std::shared_ptr<ExecutableGraph> one;   // of one step
    std::shared_ptr<ExecutableGraph> many;  // of steps_per_launch steps
  };

  Entry* find(const StepKey& key);
  void forget() noexcept;
  std::shared_ptr<ExecutableGraph> record(const std::function<void()>& step, std::int64_t steps);

  DeviceRuntime& runtime_;
  StepGraphOptions options_;
  StreamRecorder* recorder_ = nullptr;
  std::shared_ptr<CachingAllocator> memory_;
  Stream stream_;
  std::list<Entry> entries_;  // the latest used first
  std::int64_t runs_ = 0;
};

}  // namespace heddle::step
