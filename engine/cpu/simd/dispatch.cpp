// Chooses the table of kernels for this machine. The only file of the folder that is compiled once, for any machine,
// and may use the standard library.
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "simd_kernels.h"

namespace heddle::cpu::simd {

namespace baseline {
extern const SimdKernels kTable;
}
#if defined(__x86_64__)
namespace avx2 {
extern const SimdKernels kTable;
}
namespace avx512 {
extern const SimdKernels kTable;
}
#endif

const SimdKernels* simd_kernels_for(const char* isa) {
  const std::string_view name = isa;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (name == "avx512" && has_avx512) return &avx512::kTable;
  if (name == "avx2" && has_avx2) return &avx2::kTable;
#endif
  if (name == "baseline") return &baseline::kTable;
  return nullptr;
}

namespace {

const SimdKernels& choose() {
  std::string choices;
  const SimdKernels* best = nullptr;
  for (const char* isa : {"avx512", "avx2", "baseline"}) {
    const SimdKernels* table = simd_kernels_for(isa);
    if (table == nullptr) continue;
    if (best == nullptr) best = table;
    choices += std::string(choices.empty() ? "" : ", ") + isa;
  }
  const char* wanted = std::getenv("HEDDLE_SIMD");
  if (wanted == nullptr || *wanted == '\0') return *best;
  const SimdKernels* table = simd_kernels_for(wanted);
  HEDDLE_CHECK(table != nullptr, "HEDDLE_SIMD is \"", wanted, "\"; this machine and build have: ", choices);
  return *table;
}

}  // namespace

const SimdKernels& simd_kernels() {
  static const SimdKernels& chosen = choose();
  return chosen;
}

}  // namespace heddle::cpu::simd
