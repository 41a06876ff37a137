// Element-wise operations of several operands with broadcasting. Used through CudaBackend.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/visit.h"
#include "kernels/launch/broadcast.h"

namespace heddle::cuda {
namespace {

static_assert(static_cast<int>(BinaryFunction::add) == static_cast<int>(BinaryOp::add) &&
                  static_cast<int>(BinaryFunction::eq) == static_cast<int>(BinaryOp::eq) &&
                  static_cast<int>(BinaryFunction::ge) == static_cast<int>(BinaryOp::ge),
              "the kernels' list of functions is that of the primitives");

}  // namespace

void CudaBackend::binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) {
  const auto function = static_cast<BinaryFunction>(op);
  visit_all("binary", a.dtype(), [&]<class T>(TypeTag<T>) {
    if (is_comparison(op)) {
      return cuda::compare(function, data_of<T>(a), a.shape(), data_of<T>(b), b.shape(), data_of<std::uint8_t>(y),
                           y.shape(), stream());
    }
    if (std::is_integral_v<T> && (op == BinaryOp::div || op == BinaryOp::pow)) {
      throw_not_supported(op == BinaryOp::div ? "div" : "pow", a.dtype());
    }
    cuda::binary(function, data_of<T>(a), a.shape(), data_of<T>(b), b.shape(), data_of<T>(y), y.shape(), stream());
  });
}

void CudaBackend::where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) {
  visit_size("where", y.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::where(data_of<std::uint8_t>(condition), data_of<T>(a), data_of<T>(b),
                {&condition.shape(), &a.shape(), &b.shape()}, data_of<T>(y), y.shape(), stream());
  });
}

}  // namespace heddle::cuda
