// The kernels of the example's op, y = a * sigmoid(b), and its gradients da = dy sigmoid(b), db = dy a sigmoid(b)
// (1 - sigmoid(b)). gate.cu has them for a GPU, no_gate.cpp stands in where there is no CUDA toolkit. The op calls them
// with device pointers; nothing here knows Heddle.
#pragma once

#include <cstdint>

// Both queue n elements on `stream`, a cudaStream_t, and do not wait. They return nullptr, or what went wrong, as a
// text that is never freed.
const char* launch_gate(const float* a, const float* b, float* y, std::int64_t n, void* stream);

// Gradients; da or db may be nullptr: not wanted. add_a, add_b: add to what is there instead of storing.
struct GateGradients {
  float* da = nullptr;
  float* db = nullptr;
  bool add_a = false, add_b = false;
};
const char* launch_gate_backward(const float* a, const float* b, const float* dy, const GateGradients& gradients,
                                 std::int64_t n, void* stream);
