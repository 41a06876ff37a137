// The two permutations between Heddle's and PyTorch's layouts; declared in state_dict.h.
#include <cstring>

#include "engine/checkpoint/state_dict.h"

namespace heddle::checkpoint {
namespace {

using Kind = nn::ParameterLayout::Kind;

// Both layouts are swaps of the last two of three dimensions: y[o][b][a] = x[o][a][b].
// A convolution weight is (O, KH*KW, I) here and (O, I, KH*KW) there, a flattened map (out, H*W, C) and (out, C, H*W).
Tensor swap_inner(const Tensor& x, std::int64_t outer, std::int64_t a, std::int64_t b, const Shape& y_shape) {
  Tensor y = Tensor::empty(y_shape, x.dtype());
  const std::size_t nbytes = size_of(x.dtype());
  const auto* const from = static_cast<const std::byte*>(x.raw_data());
  auto* const to = static_cast<std::byte*>(y.mutable_raw_data());
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < a; ++i) {
      for (std::int64_t j = 0; j < b; ++j) {
        std::memcpy(to + static_cast<std::size_t>((o * b + j) * a + i) * nbytes,
                    from + static_cast<std::size_t>((o * a + i) * b + j) * nbytes, nbytes);
      }
    }
  }
  return y;
}

void check_layout(const Shape& shape, const nn::ParameterLayout& layout) {
  HEDDLE_CHECK(layout.kind != Kind::conv_weight || shape.rank() == 4, "a convolution weight has 4 dimensions, not ",
               shape);
  HEDDLE_CHECK(layout.kind != Kind::flattened_columns ||
                   (shape.rank() == 2 && layout.channels >= 1 && shape[1] % layout.channels == 0),
               "columns of a flattened map of ", layout.channels, " channels do not fit ", shape);
}

}  // namespace

Shape torch_shape(const Shape& shape, const nn::ParameterLayout& layout) {
  check_layout(shape, layout);
  if (layout.kind == Kind::conv_weight) return {shape[0], shape[3], shape[1], shape[2]};
  return shape;
}

Tensor to_torch_layout(const Tensor& value, const nn::ParameterLayout& layout) {
  const Shape& shape = value.shape();
  const Shape result = torch_shape(shape, layout);
  switch (layout.kind) {
    case Kind::plain: break;
    case Kind::conv_weight: return swap_inner(value, shape[0], shape[1] * shape[2], shape[3], result);
    case Kind::flattened_columns:
      return swap_inner(value, shape[0], shape[1] / layout.channels, layout.channels, result);
  }
  return value;
}

Tensor from_torch_layout(const Tensor& value, const nn::ParameterLayout& layout) {
  const Shape& shape = value.shape();
  check_layout(shape, layout);
  switch (layout.kind) {
    case Kind::plain: break;
    case Kind::conv_weight:
      return swap_inner(value, shape[0], shape[1], shape[2] * shape[3], {shape[0], shape[2], shape[3], shape[1]});
    case Kind::flattened_columns:
      return swap_inner(value, shape[0], layout.channels, shape[1] / layout.channels, shape);
  }
  return value;
}

}  // namespace heddle::checkpoint
