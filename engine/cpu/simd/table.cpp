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
    .max_pool_forward = max_pool_forward,
    .max_pool_backward = max_pool_backward,
    .avg_pool_forward = avg_pool_forward,
    .avg_pool_backward = avg_pool_backward,
    .linear_scratch_floats = linear_scratch_floats,
    .linear_forward = linear_forward,
    .linear_backward_data = linear_backward_data,
    .linear_backward_weight = linear_backward_weight,
    .column_sums_floats = column_sums_scratch_floats,
    .column_sums = column_sums,
    .batch_norm_period = batch_norm_period,
    .batch_norm_scratch_floats = batch_norm_scratch_floats,
    .batch_norm_statistics = batch_norm_statistics,
    .batch_norm_normalise = batch_norm_normalise,
    .batch_norm_sums = batch_norm_sums,
    .batch_norm_data = batch_norm_data,
    .cross_entropy_scratch_floats = cross_entropy_scratch_floats,
    .cross_entropy = cross_entropy,
    .exp = exp_array,
    .log = log_array,
    .tanh = tanh_array,
    .sigmoid = sigmoid_array,
    .relu_forward = relu_forward,
    .relu_backward = relu_backward,
    .add = add,
    .multiply = multiply,
    .scale = scale,
    .axpy = axpy,
    .fill = fill,
    .bytes_to_float = bytes_to_float,
    .to_bfloat16 = to_bfloat16,
    .from_bfloat16 = from_bfloat16,
    .sum = sum,
    .sum_of_squares = sum_of_squares,
    .count_nonfinite = count_nonfinite,
    .sgd_step = sgd_step,
    .adam_step = adam_step,
    .multiply_add_chains = multiply_add_chains,
};

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
