// Printing of tensors for people.
#include <ostream>

#include "engine/tensor/tensor.h"

namespace heddle {
namespace {

constexpr std::int64_t kEdge = 3;  // elements shown at either end of a long dimension

void print_element(std::ostream& out, const Tensor& host, std::int64_t i) {
  switch (host.dtype()) {
    case DType::f32: out << host.host_data<float>()[i]; break;
    case DType::f64: out << host.host_data<double>()[i]; break;
    case DType::bf16: out << static_cast<float>(host.host_data<bfloat16>()[i]); break;
    case DType::i32: out << host.host_data<std::int32_t>()[i]; break;
    case DType::i64: out << host.host_data<std::int64_t>()[i]; break;
    case DType::u8: out << static_cast<int>(host.host_data<std::uint8_t>()[i]); break;
  }
}

void print_dim(std::ostream& out, const Tensor& host, int dim, std::int64_t offset) {
  if (dim == host.rank()) return print_element(out, host, offset);
  const std::int64_t n = host.dim(dim);
  const std::int64_t step = host.shape().strides()[static_cast<std::size_t>(dim)];
  out << '[';
  for (std::int64_t i = 0; i < n; ++i) {
    if (n > 2 * kEdge + 2 && i == kEdge) {
      out << ", ...";
      i = n - kEdge;
    }
    if (i != 0) out << (dim + 1 == host.rank() ? ", " : ",\n ");
    print_dim(out, host, dim + 1, offset + i * step);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "tensor(undefined)";
  out << "tensor " << tensor.shape() << ' ' << tensor.dtype() << ' ' << tensor.device() << '\n';
  if (tensor.numel() == 0) return out << "[]";
  print_dim(out, tensor.to(Device::cpu()), 0, 0);
  return out;
}

}  // namespace heddle
