// The counters by which blocks that share a sum find out who is last (see kernels/launch/matrix_kernels.h).
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <mutex>

#include "engine/tensor/tensor.h"
#include "kernels/launch/matrix_kernels.h"

namespace heddle::cuda {

// Tickets of one GPU, kMaxTickets for each stream: kernels of one stream run one after the other and may share them.
// Zero when made, and each kernel leaves them so. Thread-safe.
class SplitTickets {
 public:
  // Allocates, and waits until the memory is zero.
  explicit SplitTickets(Device device);
  // The tickets of a stream. Of more than kStreams streams, the one that was seen first gives its tickets away: it must
  // be idle by then.
  unsigned* for_stream(cudaStream_t stream);

 private:
  static constexpr std::size_t kStreams = 64;

  std::mutex mutex_;
  Tensor memory_;  // i32 (kStreams, kMaxTickets)
  std::array<cudaStream_t, kStreams> owners_{};
  std::size_t seen_ = 0;
};

// The scratch of one call; keeps its memory as long as work is queued.
class SplitMemory {
 public:
  SplitMemory(const SplitPlan& plan, Device device, SplitTickets& tickets, cudaStream_t stream);
  const SplitScratch& scratch() const noexcept { return scratch_; }

 private:
  Tensor partials_;
  SplitScratch scratch_;
};

}  // namespace heddle::cuda
