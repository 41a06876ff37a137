// Names for stretches of host time in a profiler's timeline (NVTX). Costs nothing where no profiler is attached.
#pragma once

namespace heddle::cuda::profile {

void begin(const char* name) noexcept;
void end() noexcept;

// A stretch of time while it lives.
class Range {
 public:
  explicit Range(const char* name) noexcept { begin(name); }
  ~Range() { end(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace heddle::cuda::profile
