// Which function a kernel computes, where one kernel has several. No device code: host code includes it too.
#pragma once

namespace heddle::cuda {

// In the order of heddle::UnaryOp.
enum class UnaryFunction : int {
  copy,
  neg,
  abs,
  exp,
  log,
  sqrt,
  relu,
  sigmoid,
  tanh,
  gelu,
  pow_scalar,
  add_scalar,
  mul_scalar,
  clamp
};

// In the order of heddle::BinaryOp: arithmetic, then comparisons from eq on.
enum class BinaryFunction : int { add, sub, mul, div, pow, maximum, minimum, eq, ne, lt, le, gt, ge };

// How the elements of a reduction are joined.
enum class Joining : int { sum, max, min };

// Element types that a kernel distinguishes at run time.
enum class ElementType : int { f32, f64, bf16, i32, i64, u8 };

}  // namespace heddle::cuda
