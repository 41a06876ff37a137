// Lets all ranks of a training stop after the same step when a signal comes.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/comm/communicator.h"
#include "tools/interrupt.h"

namespace heddle::tools {

// Why it works with ranks in this process: a rank cannot take part in the exchange of a step before rank 0 does, so
// what rank 0 decides before a step is known to all before the next; or, where the exchange is in recorded steps, which
// hosts queue ahead, before the one behind the steps that may be queued. Ranks in processes of their own, any of which
// may get the signal, ask each other before each step.
class StopAgreement {
 public:
  // Ranks in this process. ahead: steps that one may have queued while rank 0 has not queued the first of them.
  StopAgreement(const InterruptWatch& interrupt, int ranks, std::int64_t ahead = 0)
      : interrupt_(interrupt), ranks_(ranks), ahead_(ahead) {}
  // This process is one rank of several.
  StopAgreement(const InterruptWatch& interrupt, comm::Communicator& communicator)
      : interrupt_(interrupt), ranks_(communicator.world_size()), processes_(&communicator) {}

  bool are_processes() const noexcept { return processes_ != nullptr; }

  // To be asked by every rank before it queues its next step, with the number of steps that it has queued so far.
  // Throws: CommError with ranks in processes, as below.
  bool stops_before(int rank, std::int64_t queued) {
    if (processes_ != nullptr) return signal() != 0;
    if (rank == 0 && interrupt_.requested() && stop_at_.load(std::memory_order_relaxed) == kNever) {
      // The others may be inside the next step already.
      stop_at_.store(ranks_ == 1 ? queued : queued + ahead_ + 1, std::memory_order_release);
    }
    return queued >= stop_at_.load(std::memory_order_acquire);
  }

  // Number of the signal that stops them; 0 if none came. To be asked by every rank.
  int signal() {
    if (processes_ == nullptr) return interrupt_.signal();
    Tensor number = Tensor::from_values(std::vector<std::int64_t>{interrupt_.signal()}, {1});
    processes_->all_reduce(number, comm::ReduceOp::max, "signals");
    return static_cast<int>(number.item());
  }

  // Returns when every rank that is a process has called it: a launcher ends all ranks when the first one reports
  // anything but success, which must not happen while another one still saves.
  void leave_together() {
    if (processes_ != nullptr) processes_->barrier("end of the interrupted training");
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const InterruptWatch& interrupt_;
  const int ranks_;
  const std::int64_t ahead_ = 0;
  comm::Communicator* const processes_ = nullptr;
  std::atomic<std::int64_t> stop_at_{kNever};
};

}  // namespace heddle::tools
