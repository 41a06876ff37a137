// What fits together: the checks of all ops, the same for every backend, and the shapes of results. Used by ops/ and by
// nn/ for messages at construction. Knows tensors, not variables; runs no primitive.
//
// All functions throw InvalidArgument with the op's name and both sides of what does not fit.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "../backend/op_params.h"
#include "../tensor/tensor.h"

namespace heddle::ops {

// ---- properties of operands
void check_defined(const char* op, const char* name, const Tensor& x);
void check_float(const char* op, const char* name, const Tensor& x);
void check_dtype(const char* op, const char* name, const Tensor& x, DType wanted);
// Same device and dtype; the names are for the message.
void check_same_dtype(const char* op, const char* a_name, const Tensor& a, const char* b_name, const Tensor& b);
void check_same_device(const char* op, const char* a_name, const Tensor& a, const char* b_name, const Tensor& b);
void check_rank(const char* op, const char* name, const Tensor& x, int rank);
// Index i as a dimension of x, counted from the front.
int check_dim(const char* op, const Tensor& x, int dim);
// index is i64 and, on the CPU, every value is in [0, limit) or equals ignored.
void check_index_values(const char* op, const char* name, const Tensor& index, std::int64_t limit,
                        const std::int64_t* ignored = nullptr);

// ---- shapes of results
// Trailing dimensions aligned; a dimension of 1 stretches.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);
// Bits of the dimensions of `wide` along which an operand of shape `own` was stretched; own must broadcast to wide.
std::uint32_t broadcast_mask(const Shape& own, const Shape& wide);
// Bits of the given dimensions. Throws also if one is named twice.
std::uint32_t dims_mask(const char* op, const Tensor& x, const std::vector<int>& dims);
Shape reduced_shape(const Shape& shape, std::uint32_t mask, bool keepdim);
Shape matmul_shape(const Tensor& a, const Tensor& b, const MatmulParams& params);
Shape concat_shape(const std::vector<Tensor>& inputs, int dim);
Shape linear_shape(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias);
Shape conv2d_shape(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params);
// With ceil_mode the size is rounded up, but a last window that starts at or beyond input + leading padding is dropped.
// Padding is smaller than the kernel, so no window holds padding only.
Shape pool2d_shape(const char* op, const Tensor& x, const Pool2dParams& params);
Shape pool2d_shape(const char* op, const Shape& x, const Pool2dParams& params);  // of images that do not exist yet
Shape adaptive_pool2d_shape(const char* op, const Tensor& x, std::int64_t out_h, std::int64_t out_w);

// scale, shift and the running statistics of batch norm are channel vectors of x; addend is undefined or like x.
void check_batch_norm(const char* op, const Tensor& x, const Tensor& addend, const Tensor& scale, const Tensor& shift);
void check_running_statistics(const char* op, const Tensor& x, const Tensor& mean, const Tensor& var);
// rows > 1 or 0. Throws: InvalidArgument saying that one row has no variance.
void check_batch_norm_rows(const char* op, const Shape& x, std::int64_t rows);

}  // namespace heddle::ops
