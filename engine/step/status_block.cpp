#include "engine/step/status_block.h"

#include <atomic>
#include <thread>

#include "engine/device/device_runtime.h"

namespace heddle::step {
namespace {

using Clock = std::chrono::steady_clock;

// A step of the smallest models takes some 20 microseconds, so a short wait looks often; a long one leaves the core.
constexpr int kBusyLooks = 200;
constexpr std::chrono::microseconds kPause{50};

}  // namespace

StatusReader::StatusReader(StepState& state, const StatusOptions& options)
    : state_(state), options_(options), submitted_(state.read(step_slot::kSequence)), read_(submitted_) {
  HEDDLE_CHECK(options.max_queued >= 1 && options.max_queued <= kStatusRecords / 2, "StatusReader: max_queued ",
               options.max_queued, " is outside [1, ", kStatusRecords / 2, "]");
}

void StatusReader::submitted(std::int64_t steps) {
  HEDDLE_CHECK(steps >= 0 && queued() + steps <= options_.max_queued, "StatusReader: ", steps,
               " steps were queued behind ", queued(), ", at most ", options_.max_queued,
               " may be: read their records first");
  submitted_ += steps;
}

std::optional<StatusRecord> StatusReader::next(std::int64_t room) {
  if (read_ == submitted_) return std::nullopt;
  if (!is_finished()) {
    if (queued() + room <= options_.max_queued) return std::nullopt;
    wait();
  }
  ++read_;
  return state_.host_records()[read_ % kStatusRecords];
}

bool StatusReader::is_finished() const noexcept {
  // The device writes the number last and releases it. The ring is the device's, so its type says const here.
  auto& sequence = const_cast<std::int64_t&>(state_.host_records()[(read_ + 1) % kStatusRecords].sequence);
  return std::atomic_ref<std::int64_t>(sequence).load(std::memory_order_acquire) == read_ + 1;
}

void StatusReader::wait() const {
  const Device device = state_.device();
  DeviceRuntime& runtime = runtime_for(device);
  const Stream stream = current_stream(device);
  const Clock::time_point begin = Clock::now(), end = begin + options_.deadline;
  for (int looks = 0; !is_finished(); ++looks) {
    // Asked every time, for a device that failed never writes another record.
    if (runtime.is_done(stream) && !is_finished()) {
      throw DeviceError(join_text(device, " finished all work of the current stream, but update ", read_ + 1,
                                  " left no record: it was not queued, or on another stream"));
    }
    // The work may be that of a communicator whose peer is gone.
    runtime.waiting(Clock::now() - begin);
    if (Clock::now() > end) {
      throw DeviceError(
          join_text(device, " has not finished step ", read_ + 1, " within ", options_.deadline.count(), " ms"));
    }
    if (looks < kBusyLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace heddle::step
