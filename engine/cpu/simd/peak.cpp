// The most multiply-adds that one core can do: independent chains in registers, no memory. `heddle bench` measures
// kernels against it.
#include "kernels.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

// More chains than any processor's latency times its units, and few enough to stay in registers.
constexpr int kChains = kRegisters * 3 / 4;

std::int64_t multiply_add_chains(std::int64_t rounds, float* out) {
  Vec chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = broadcast(static_cast<float>(i));
  const Vec factor = broadcast(0.999f), term = broadcast(0.001f);
  for (std::int64_t round = 0; round < rounds; ++round) {
    HEDDLE_UNROLL
    for (int i = 0; i < kChains; ++i) chains[i] = chains[i] * factor + term;
  }
  Vec sum = chains[0];
  for (int i = 1; i < kChains; ++i) sum += chains[i];
  *out = sum_lanes(sum);
  return rounds * kChains * kLanes * 2;
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
