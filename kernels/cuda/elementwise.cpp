// Fill, cast and arithmetic on each element alone. Used through CudaBackend.
#include "kernels/launch/elementwise.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {
namespace {

static_assert(static_cast<int>(UnaryFunction::copy) == static_cast<int>(UnaryOp::copy) &&
                  static_cast<int>(UnaryFunction::relu) == static_cast<int>(UnaryOp::relu) &&
                  static_cast<int>(UnaryFunction::clamp) == static_cast<int>(UnaryOp::clamp),
              "the kernels' list of functions is that of the primitives");

UnaryFunction function_of(UnaryOp op) { return static_cast<UnaryFunction>(op); }

// Operations whose result on integers is an integer.
bool stays_whole(UnaryOp op) {
  switch (op) {
    case UnaryOp::copy:
    case UnaryOp::neg:
    case UnaryOp::abs:
    case UnaryOp::relu:
    case UnaryOp::add_scalar:
    case UnaryOp::mul_scalar:
    case UnaryOp::clamp: return true;
    default: return false;
  }
}

// What the derivative is computed from.
const Tensor* saved_operand(UnaryOp op, const Tensor& x, const Tensor& y) {
  switch (op) {
    case UnaryOp::exp:
    case UnaryOp::sqrt:
    case UnaryOp::relu:
    case UnaryOp::sigmoid:
    case UnaryOp::tanh: return &y;
    case UnaryOp::abs:
    case UnaryOp::log:
    case UnaryOp::gelu:
    case UnaryOp::pow_scalar:
    case UnaryOp::clamp: return &x;
    default: return nullptr;
  }
}

}  // namespace

void CudaBackend::fill(Tensor& y, double value) {
  visit_all("fill", y.dtype(), [&]<class T>(TypeTag<T>) { cuda::fill(data_of<T>(y), y.numel(), value, stream()); });
}

void CudaBackend::cast(const Tensor& x, Tensor& y) {
  visit_all("cast", x.dtype(), [&]<class From>(TypeTag<From>) {
    visit_all("cast", y.dtype(),
              [&]<class To>(TypeTag<To>) { cuda::cast(data_of<From>(x), x.numel(), data_of<To>(y), stream()); });
  });
}

void CudaBackend::axpy(double alpha, const Tensor& x, Tensor& y) {
  visit_floats("axpy", y.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::axpy(static_cast<float>(alpha), data_of<T>(x), x.numel(), data_of<T>(y), stream());
  });
}

void CudaBackend::unary(UnaryOp op, const Tensor& x, double a, double b, Tensor& y) {
  visit_all("unary", x.dtype(), [&]<class T>(TypeTag<T>) {
    if (std::is_integral_v<T> && !stays_whole(op)) throw_not_supported("this unary operation", x.dtype());
    cuda::unary(function_of(op), data_of<T>(x), x.numel(), a, b, data_of<T>(y), stream());
  });
}

void CudaBackend::unary_backward(UnaryOp op, const Tensor& x, const Tensor& y, const Tensor& dy, double a, double b,
                                 Tensor& dx, WriteMode mode) {
  const Tensor* const saved = saved_operand(op, x, y);
  visit_floats("unary_backward", dy.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::unary_backward(function_of(op), saved == nullptr ? nullptr : data_of<T>(*saved), data_of<T>(dy), dy.numel(),
                         a, b, data_of<T>(dx), mode == WriteMode::add, stream());
  });
}

}  // namespace heddle::cuda
