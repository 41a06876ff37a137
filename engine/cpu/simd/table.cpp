// The table of one instruction set. Constant data only: selecting an instruction set runs no code built for it.
#include "kernels.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

extern const SimdKernels kTable;
const SimdKernels kTable = {
#if HEDDLE_SIMD_LANES == 16
    .isa = "avx512",
#elif HEDDLE_SIMD_LANES == 8
    .isa = "avx2",
#else
    .isa = "baseline",
#endif
    .image_block = 2 * kLanes,
    .conv_packed_floats = conv_packed_floats,
    .conv_scratch_floats = conv_scratch_floats,
    .conv_partial_floats = conv_partial_floats,
    .conv_pack_forward = conv_pack_forward,
    .conv_pack_backward = conv_pack_backward,
    .conv_forward = conv_forward,
    .conv_backward_data = conv_backward_data,
    .conv_backward_weight = conv_backward_weight,
    .conv_reduce_partials = conv_reduce_partials,
};

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
