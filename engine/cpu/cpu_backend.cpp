#include "engine/cpu/cpu_backend.h"

#include "engine/cpu/dnnl_context.h"
#include "engine/cpu/simd/simd_kernels.h"

namespace heddle {

namespace cpu {
std::string CpuBackend::description() const {
  return join_text(dnnl_description(), "; own kernels: ", simd::simd_kernels().isa);
}
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<cpu::CpuBackend>(); }

}  // namespace heddle
