// Runs the threads of one kernel launch on the calling host thread. Used by the launch functions. It must not know
// streams or memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/shim/kernel_call.h"

namespace cudasim {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t dynamic_shared_nbytes = 0;
};

// Runs every block of the grid, one after the other. name is for reports.
// Throws: DeviceFault if the kernel used an address that it may not use.
void run_grid(const KernelCall& call, const LaunchShape& shape, ThreadOrder order, const char* name);

// Whether the calling thread is inside a kernel; its name then, else nullptr.
const char* running_kernel();
// Leaves the running kernel because of a fault, for the handler of memory faults. Does not return.
[[noreturn]] void leave_faulted_kernel();

}  // namespace cudasim
