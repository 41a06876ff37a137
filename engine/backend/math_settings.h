// How the maths libraries of a GPU may compute: what the program's --precision, --deterministic and its kin mean to a
// backend. Set by programs, read by backends when they choose an algorithm. The CPU backend is always exact in this
// sense and ignores it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// Of products of f32 tensors. tf32: factors may be rounded to 10 bits of fraction, which runs on tensor cores.
enum class F32Products : std::uint8_t { exact, tf32 };

struct MathSettings {
  F32Products f32_products = F32Products::exact;
  // Only algorithms that give the same bits for the same call on the same model of GPU.
  bool deterministic = false;
  // Most scratch memory of one call. Algorithms that want more are passed over.
  std::size_t workspace_limit_nbytes = std::size_t{256} << 20;
  // Measure the algorithms for a convolution that is met for the first time, on copies of its tensors, instead of
  // trusting the library's estimate. The first step of a shape is slower then.
  bool time_algorithms = false;
  friend bool operator==(const MathSettings&, const MathSettings&) = default;
};

// The settings of the process. Thread-safe.
MathSettings math_settings();
// Holds for calls that begin later. A captured step (StepGraph) keeps what it was captured with, so set this before
// training begins.
void set_math_settings(const MathSettings& settings);

}  // namespace heddle
