// threadIdx and its kin for kernels that a host compiler compiled.
#pragma once

#include <vector_types.h>

// Kernels read these often; the simulator is always loaded at program start or is small enough for the spare room.
#define CUDASIM_TLS __attribute__((tls_model("initial-exec"), visibility("default")))

extern CUDASIM_TLS thread_local uint3 threadIdx;
extern CUDASIM_TLS thread_local uint3 blockIdx;
extern CUDASIM_TLS thread_local dim3 blockDim;
extern CUDASIM_TLS thread_local dim3 gridDim;
constexpr int warpSize = 32;
