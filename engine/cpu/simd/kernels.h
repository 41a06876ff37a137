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

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
