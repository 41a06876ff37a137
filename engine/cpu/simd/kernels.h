// The functions of one instruction set, as the table in table.cpp collects them. What they do is said in
// simd_kernels.h.
#pragma once

#include "simd_kernels.h"
#include "vec.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

std::size_t conv_packed_floats(const ConvShape& s);
std::size_t conv_scratch_floats(const ConvShape& s);
std::size_t conv_partial_floats(const ConvShape& s);
std::size_t conv_weight_scratch_floats(const ConvShape& s);
void conv_pack_forward(const ConvShape& s, const float* w, float* packed);
void conv_pack_backward(const ConvShape& s, const float* w, float* packed);
void conv_forward(const ConvShape& s, const ConvForward& args, Range images);
void conv_backward_data(const ConvShape& s, const ConvBackwardData& args, Range images);
void conv_backward_weight(const ConvShape& s, const ConvBackwardWeight& args, Range images);
void conv_reduce_partials(const ConvShape& s, const ConvReduce& args);

void max_pool_forward(const PoolShape& s, const MaxPoolForward& args, Range images);
void max_pool_backward(const PoolShape& s, const MaxPoolBackward& args, Range images);
void avg_pool_forward(const PoolShape& s, const AvgPoolForward& args, Range images);
void avg_pool_backward(const PoolShape& s, const AvgPoolBackward& args, Range images);

std::size_t linear_scratch_floats(const LinearShape& s);
void linear_forward(const LinearShape& s, const LinearForward& args, Range rows);
void linear_backward_data(const LinearShape& s, const LinearBackwardData& args, Range rows);
void linear_backward_weight(const LinearShape& s, const LinearBackwardWeight& args, Range in_features);
std::size_t column_sums_scratch_floats(std::int64_t columns);
void column_sums(const float* x, std::int64_t rows, std::int64_t columns, bool accumulate, float* sums, float* scratch);

std::int64_t batch_norm_period(std::int64_t channels);
std::size_t batch_norm_scratch_floats(std::int64_t channels);
void batch_norm_statistics(const BatchNormBlock& block, const float* x, double* mean, double* m2, float* scratch);
void batch_norm_normalise(const BatchNormBlock& block, const BatchNormNormalise& args);
void batch_norm_sums(const BatchNormBlock& block, const BatchNormSums& args);
void batch_norm_data(const BatchNormBlock& block, const BatchNormData& args);

std::size_t cross_entropy_scratch_floats(std::int64_t classes);
CrossEntropySums cross_entropy(const CrossEntropy& args, Range rows);

void exp_array(const float* x, float* y, std::int64_t n);
void log_array(const float* x, float* y, std::int64_t n);
void tanh_array(const float* x, float* y, std::int64_t n);
void sigmoid_array(const float* x, float* y, std::int64_t n);

void relu_forward(const float* x, float* y, std::int64_t n);
void relu_backward(const float* dy, const float* y, float* dx, std::int64_t n);
void add(const float* a, const float* b, float* y, std::int64_t n);
void multiply(const float* a, const float* b, float* y, std::int64_t n);
void scale(const float* x, float factor, float* y, std::int64_t n);
void axpy(float factor, const float* x, float* y, std::int64_t n);
void fill(float value, float* y, std::int64_t n);
void bytes_to_float(const std::uint8_t* x, const float* scale, const float* shift, std::int64_t channels, float* y,
                    std::int64_t n);
void to_bfloat16(const float* x, std::uint16_t* y, std::int64_t n);
void from_bfloat16(const std::uint16_t* x, float* y, std::int64_t n);
double sum(const float* x, std::int64_t n);
double sum_of_squares(const float* x, std::int64_t n);
std::int64_t count_nonfinite(const float* x, std::int64_t n);

std::int64_t sgd_step(const SgdStep& args, Range values);
std::int64_t adam_step(const AdamStep& args, Range values);

std::int64_t multiply_add_chains(std::int64_t rounds, float* out);

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
