#include "kernels/launch/profile.h"

#include <nvtx3/nvToolsExt.h>

namespace heddle::cuda::profile {

void begin(const char* name) noexcept { nvtxRangePushA(name); }
void end() noexcept { nvtxRangePop(); }

}  // namespace heddle::cuda::profile
