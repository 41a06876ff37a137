// Lets all ranks of a training stop after the same step: when a signal comes, or when its time is over.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "engine/comm/communicator.h"
#include "tools/interrupt.h"

namespace heddle::tools {

// What stops a training that no signal stops.
struct StopLimits {
  // The step at which it passes is the last one. One step is done in any case, so that a training that is resumed again
  // and again comes to its end.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  // Steps of the whole training, those before a resume counted.
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();
};

// Why it works with ranks in this process: a rank cannot take part in the exchange of a step before rank 0 does, so
// what rank 0 decides before a step is known to all before the next; or, where the exchange is in recorded steps, which
// hosts queue ahead, before the one behind the steps that may be queued. Ranks in processes of their own, any of which
// may get the signal, ask each other before each step.
class StopAgreement {
 public:
  // Ranks in this process. ahead: steps that one may have queued while rank 0 has not queued the first of them.
  StopAgreement(const InterruptWatch& interrupt, int ranks, StopLimits limits = {}, std::int64_t ahead = 0)
      : interrupt_(interrupt), ranks_(ranks), ahead_(ahead), limits_(limits) {}
  // This process is one rank of several.
  StopAgreement(const InterruptWatch& interrupt, comm::Communicator& communicator, StopLimits limits = {})
      : interrupt_(interrupt), ranks_(communicator.world_size()), processes_(&communicator), limits_(limits) {}

  bool are_processes() const noexcept { return processes_ != nullptr; }

  // To be asked by every rank before it queues its next step, with the number of steps that it has queued so far.
  // Throws: CommError with ranks in processes, as below.
  bool stops_before(int rank, std::int64_t queued) {
    if (queued >= limits_.steps) return true;
    if (rank == 0 || processes_ != nullptr) count_steps(queued);
    if (processes_ != nullptr) return agreed_reason() != kNoReason;
    if (rank == 0 && reason() != kNoReason && stop_at_.load(std::memory_order_relaxed) == kNever) {
      // The others may be inside the next step already.
      stop_at_.store(ranks_ == 1 ? queued : queued + ahead_ + 1, std::memory_order_release);
    }
    return queued >= stop_at_.load(std::memory_order_acquire);
  }

  // Whether this rank knows of a reason to stop.
  bool requested() const { return reason() != kNoReason; }

  // Number of the signal that stops them; 0 if none came, so that a limit does. To be asked by every rank.
  int signal() {
    const std::int64_t why = processes_ == nullptr ? reason() : agreed_reason();
    return why > kLimit ? static_cast<int>(why - kLimit) : 0;
  }

  // Returns when every rank that is a process has called it: a launcher ends all ranks when the first one reports
  // anything but success, which must not happen while another one still saves.
  void leave_together() {
    if (processes_ != nullptr) processes_->barrier("end of the interrupted training");
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  // Reasons in order of weight: none, a limit, and kLimit + the number of a signal.
  static constexpr std::int64_t kNoReason = 0, kLimit = 1;

  void count_steps(std::int64_t queued) {
    if (first_step_ < 0) first_step_ = queued;
    if (queued > first_step_) has_stepped_.store(true, std::memory_order_relaxed);
  }
  std::int64_t reason() const {
    if (interrupt_.requested()) return kLimit + interrupt_.signal();
    const bool late = limits_.deadline && has_stepped_.load(std::memory_order_relaxed) &&
                      std::chrono::steady_clock::now() >= *limits_.deadline;
    return late ? kLimit : kNoReason;
  }
  std::int64_t agreed_reason() {
    Tensor number = Tensor::from_values(std::vector<std::int64_t>{reason()}, {1});
    processes_->all_reduce(number, comm::ReduceOp::max, "reasons to stop");
    return static_cast<std::int64_t>(number.item());
  }

  const InterruptWatch& interrupt_;
  const int ranks_;
  const std::int64_t ahead_ = 0;
  comm::Communicator* const processes_ = nullptr;
  const StopLimits limits_;
  std::int64_t first_step_ = -1;  // of rank 0, or of this process: steps queued when it was asked first
  std::atomic<bool> has_stepped_{false};
  std::atomic<std::int64_t> stop_at_{kNever};
};

}  // namespace heddle::tools
