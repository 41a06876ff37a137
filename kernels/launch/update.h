// The update of the weights at the end of a step. Nothing waits. All pointers are device memory, but for the records.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/update_types.cuh"

namespace heddle::cuda {

// One kernel. count: elements of the flat buffers, which begin at multiples of 16 bytes. Settings: SgdSettings or
// AdamSettings.
template <class Settings>
void update(const UpdateBuffers& buffers, const UpdateRanges<Settings>& ranges, cudaStream_t stream);
// Backend::write_gradients in one kernel.
void write_gradients(float* gradients, const KnownGradients& known, cudaStream_t stream);

// Blocks of gradient_norm() for so many elements: the number of its partial sums.
int gradient_norm_blocks(std::int64_t count);
// One kernel. count: a multiple of 4.
void gradient_norm(const NormBuffers& buffers, std::int64_t count, cudaStream_t stream);

}  // namespace heddle::cuda
