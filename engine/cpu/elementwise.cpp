// elementwise of the CPU backend.
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {

void CpuBackend::fill(Tensor&, double) { throw NotSupported("fill"); }

void CpuBackend::cast(const Tensor&, Tensor&) { throw NotSupported("cast"); }

void CpuBackend::axpy(double, const Tensor&, Tensor&) { throw NotSupported("axpy"); }

void CpuBackend::unary(UnaryOp, const Tensor&, double, double, Tensor&) { throw NotSupported("unary"); }

void CpuBackend::unary_backward(UnaryOp, const Tensor&, const Tensor&, const Tensor&, double, double, Tensor&,
                                WriteMode) {
  throw NotSupported("unary_backward");
}

void CpuBackend::binary(BinaryOp, const Tensor&, const Tensor&, Tensor&) { throw NotSupported("binary"); }

void CpuBackend::where(const Tensor&, const Tensor&, const Tensor&, Tensor&) { throw NotSupported("where"); }

}  // namespace heddle::cpu
