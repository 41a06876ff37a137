// For toolkits without the NVTX headers: no profiler is told anything.
#include "kernels/launch/profile.h"

namespace heddle::cuda::profile {

void begin(const char*) noexcept {}
void end() noexcept {}

}  // namespace heddle::cuda::profile
