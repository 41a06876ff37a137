// Lets all ranks of a training in this process stop after the same step when a signal comes.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "tools/interrupt.h"

namespace heddle::tools {

// Why it works: a rank cannot take part in the exchange of a step before rank 0 does, so what rank 0 decides before a
// step is known to all before the next.
class StopAgreement {
 public:
  StopAgreement(const InterruptWatch& interrupt, int ranks) : interrupt_(interrupt), ranks_(ranks) {}

  // To be asked by every rank before it queues its next step, with the number of steps that it has queued so far.
  bool stops_before(int rank, std::int64_t queued) noexcept {
    if (rank == 0 && interrupt_.requested() && stop_at_.load(std::memory_order_relaxed) == kNever) {
      // The others may be inside the next step already.
      stop_at_.store(ranks_ == 1 ? queued : queued + 1, std::memory_order_release);
    }
    return queued >= stop_at_.load(std::memory_order_acquire);
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const InterruptWatch& interrupt_;
  const int ranks_;
  std::atomic<std::int64_t> stop_at_{kNever};
};

}  // namespace heddle::tools
