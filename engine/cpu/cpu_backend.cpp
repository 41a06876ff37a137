#include "engine/cpu/cpu_backend.h"

namespace heddle {

namespace cpu {
std::string CpuBackend::description() const { return "CPU"; }
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<cpu::CpuBackend>(); }

}  // namespace heddle
