// Vector exp, log, tanh and sigmoid over arrays.
#include "kernels.h"
#include "vec_math.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

template <class Function>
HEDDLE_INLINE void apply(const float* x, float* y, std::int64_t n, const Function& function) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, function(load(x + i)));
  if (i < n) store_first(y + i, function(load_first(x + i, n - i)), n - i);
}

}  // namespace

void exp_array(const float* x, float* y, std::int64_t n) {
  apply(x, y, n, [](Vec v) { return vec_exp(v); });
}
void log_array(const float* x, float* y, std::int64_t n) {
  apply(x, y, n, [](Vec v) { return vec_log(v); });
}
void tanh_array(const float* x, float* y, std::int64_t n) {
  apply(x, y, n, [](Vec v) { return vec_tanh(v); });
}
void sigmoid_array(const float* x, float* y, std::int64_t n) {
  apply(x, y, n, [](Vec v) { return vec_sigmoid(v); });
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
