#include <cmath>
#include <numbers>

#include "reference/reference.h"

namespace heddle::reference {
namespace {

// Distribution and density of the standard normal.
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_pdf(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

double apply(UnaryOp op, double x, double a, double b) {
  switch (op) {
    case UnaryOp::copy: return x;
    case UnaryOp::neg: return -x;
    case UnaryOp::abs: return std::abs(x);
    case UnaryOp::exp: return std::exp(x);
    case UnaryOp::log: return std::log(x);
    case UnaryOp::sqrt: return std::sqrt(x);
    case UnaryOp::relu: return x <= 0 ? 0 : x;
    case UnaryOp::sigmoid: return 1 / (1 + std::exp(-x));
    case UnaryOp::tanh: return std::tanh(x);
    case UnaryOp::gelu: return x * normal_cdf(x);
    case UnaryOp::pow_scalar: return std::pow(x, a);
    case UnaryOp::add_scalar: return x + a;
    case UnaryOp::mul_scalar: return x * a;
    case UnaryOp::clamp: return x < a ? a : x > b ? b : x;
  }
  throw InvalidArgument("unknown unary op");
}

// Derivative at operand x with result y.
double derivative(UnaryOp op, double x, double y, double a, double b) {
  switch (op) {
    case UnaryOp::copy:
    case UnaryOp::add_scalar: return 1;
    case UnaryOp::neg: return -1;
    case UnaryOp::abs: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case UnaryOp::exp: return y;
    case UnaryOp::log: return 1 / x;
    case UnaryOp::sqrt: return 0.5 / y;
    case UnaryOp::relu: return y > 0 ? 1 : 0;
    case UnaryOp::sigmoid: return y * (1 - y);
    case UnaryOp::tanh: return 1 - y * y;
    case UnaryOp::gelu: return normal_cdf(x) + x * normal_pdf(x);
    case UnaryOp::pow_scalar: return a == 0 ? 0 : a * std::pow(x, a - 1);
    case UnaryOp::mul_scalar: return a;
    case UnaryOp::clamp: return x >= a && x <= b ? 1 : 0;
  }
  throw InvalidArgument("unknown unary op");
}

double apply(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add: return a + b;
    case BinaryOp::sub: return a - b;
    case BinaryOp::mul: return a * b;
    case BinaryOp::div: return a / b;
    case BinaryOp::pow: return std::pow(a, b);
    case BinaryOp::maximum: return std::isnan(a) || std::isnan(b) ? std::nan("") : a > b ? a : b;
    case BinaryOp::minimum: return std::isnan(a) || std::isnan(b) ? std::nan("") : a < b ? a : b;
    case BinaryOp::eq: return a == b;
    case BinaryOp::ne: return a != b;
    case BinaryOp::lt: return a < b;
    case BinaryOp::le: return a <= b;
    case BinaryOp::gt: return a > b;
    case BinaryOp::ge: return a >= b;
  }
  throw InvalidArgument("unknown binary op");
}

// The element of x that stands at flat index i of the broadcast shape.
double broadcast_element(const Array& x, const Shape& shape, std::int64_t i) {
  std::int64_t index = 0, stride = 1;
  for (int d = 1; d <= x.shape.rank(); ++d) {
    const std::int64_t size = shape[-d], coordinate = i % size;
    i /= size;
    if (x.dim(-d) != 1) index += coordinate * stride;
    stride *= x.dim(-d);
  }
  return x[index];
}

}  // namespace

Array unary(UnaryOp op, const Array& x, double a, double b) {
  Array y(x.shape);
  for (std::int64_t i = 0; i < y.numel(); ++i) y[i] = apply(op, x[i], a, b);
  return y;
}

Array unary_backward(UnaryOp op, const Array& x, const Array& y, const Array& dy, double a, double b) {
  Array dx(dy.shape);
  for (std::int64_t i = 0; i < dx.numel(); ++i) {
    dx[i] = dy[i] * derivative(op, x.defined() ? x[i] : 0, y.defined() ? y[i] : 0, a, b);
  }
  return dx;
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> dims(static_cast<std::size_t>(rank));
  for (int d = 1; d <= rank; ++d) {
    const std::int64_t in_a = d <= a.rank() ? a[-d] : 1, in_b = d <= b.rank() ? b[-d] : 1;
    dims[static_cast<std::size_t>(rank - d)] = in_a == 1 ? in_b : in_a;
  }
  return Shape(dims);
}

Array binary(BinaryOp op, const Array& a, const Array& b) {
  Array y(broadcast_shape(a.shape, b.shape));
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    y[i] = apply(op, broadcast_element(a, y.shape, i), broadcast_element(b, y.shape, i));
  }
  return y;
}

Array where(const Array& condition, const Array& a, const Array& b) {
  Array y(broadcast_shape(condition.shape, broadcast_shape(a.shape, b.shape)));
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    y[i] = broadcast_element(broadcast_element(condition, y.shape, i) != 0 ? a : b, y.shape, i);
  }
  return y;
}

Array axpy(double alpha, const Array& x, const Array& y) {
  Array result = y;
  for (std::int64_t i = 0; i < y.numel(); ++i) result[i] += alpha * x[i];
  return result;
}

}  // namespace heddle::reference
