// What nvcc gives to kernel sources and a host compiler does not: included by force (-include) in front of each .cu
// file when it is compiled for the simulated CUDA. Kernel sources must not include it themselves.
//
// The real CUDA headers come first; without nvcc they leave __global__ and its kin empty and declare no device
// function.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

// One block runs on one host thread at a time. Unlike on hardware the memory is zero at program start.
#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

#include "tests/cudasim/shim/atomics.h"
#include "tests/cudasim/shim/indices.h"
#include "tests/cudasim/shim/kernel_call.h"
#include "tests/cudasim/shim/launch.h"
#include "tests/cudasim/shim/math.h"
#include "tests/cudasim/shim/warp.h"
