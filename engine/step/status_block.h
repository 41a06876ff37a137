// How a host follows a training that it does not wait for: it reads the records that each update leaves in memory that
// both see (StepState), some steps behind the device. Used by trainers, for progress, NaN stops, signals and as a
// watchdog; on a CPU the records are there at once. Knows nothing of models.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "../backend/step_state.h"

namespace heddle::step {

struct StatusOptions {
  std::int64_t max_queued = 8;                  // steps queued ahead of the device, at most kStatusRecords / 2
  std::chrono::milliseconds deadline{300'000};  // longest wait for one step
};

// Every update of the state must be told with submitted(), each record be read once, in order. Not thread-safe.
class StatusReader {
 public:
  // Starts where the state is. Blocks on a GPU, once. Throws: InvalidArgument on options out of range.
  explicit StatusReader(StepState& state, const StatusOptions& options = {});

  // `steps` updates were queued on current_stream(). Throws: InvalidArgument if that is more than max_queued allows.
  void submitted(std::int64_t steps = 1);
  // The oldest record that was not read yet. Returns nothing if it is not finished, unless `room` more steps could not
  // be queued: then waits for it, without blocking the device, up to the deadline.
  // Throws: DeviceError when the device failed or the deadline passed, with the step; what a watch of the device
  // throws.
  std::optional<StatusRecord> next(std::int64_t room = 0);
  // Waits for it in any case; nothing if all are read.
  std::optional<StatusRecord> next_or_wait() { return next(options_.max_queued); }
  // Steps whose records were not read yet.
  std::int64_t queued() const noexcept { return submitted_ - read_; }

 private:
  bool is_finished() const noexcept;
  void wait() const;

  StepState& state_;
  StatusOptions options_;
  std::int64_t submitted_;  // sequence numbers
  std::int64_t read_;
};

}  // namespace heddle::step
