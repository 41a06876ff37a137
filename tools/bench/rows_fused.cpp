// Convolution, ReLU and 2x2 pooling as one op. Where the backend has no fused form for a case, the call makes the two
// primitives' calls, as ops::conv2d_relu_pool2d does, so that the kinds of kernels can be compared here.
#include "reference/reference.h"
#include "reference/values.h"
#include "tools/bench/op_row.h"

namespace heddle::tools::bench {
namespace {

using Tensors = std::vector<Tensor>;

struct ConvPool {
  Conv2dPoolParams params;
  Shape x, w, conv, y;
  bool max = true;
  double macs = 0, window = 0;  // of the convolution; products of one of its values
};

ConvPool conv_pool(const char* op, const Sizes& s) {
  require_sizes(s["n"] > 0 && s["h"] > 0 && s["w"] > 0 && s["c"] > 0 && s["o"] > 0 && s["k"] > 0 && s["stride"] > 0, op,
                s, "all sizes but padding must be above 0");
  const auto out = [&](const char* side) { return (s[side] + 2 * s["padding"] - s["k"]) / s["stride"] + 1; };
  require_sizes(
      s["h"] + 2 * s["padding"] >= s["k"] && s["w"] + 2 * s["padding"] >= s["k"] && out("h") >= 2 && out("w") >= 2, op,
      s, "the convolution's output is smaller than the 2x2 window of the pooling");
  ConvPool c;
  c.max = s["average"] == 0;
  c.params = {
      .conv = {.stride_h = s["stride"], .stride_w = s["stride"], .padding_h = s["padding"], .padding_w = s["padding"]},
      .pool = c.max ? PoolKind::max : PoolKind::avg};
  c.x = {s["n"], s["h"], s["w"], s["c"]};
  c.w = {s["o"], s["k"], s["k"], s["c"]};
  c.conv = {s["n"], out("h"), out("w"), s["o"]};
  c.y = {s["n"], c.conv[1] / 2, c.conv[2] / 2, s["o"]};
  require_sizes(c.x.numel() <= kMaxNumel && c.conv.numel() <= kMaxNumel, op, s, "too large");
  c.window = static_cast<double>(c.w.numel() / s["o"]);
  c.macs = static_cast<double>(c.conv.numel()) * c.window;
  return c;
}

double nbytes_of(const Shape& shape, DType dtype) {
  return static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
}

Array pooled(const ConvPool& c, const Array& conv) {
  return c.max ? reference::max_pool2d_forward(conv, {}, true).y : reference::avg_pool2d_forward(conv, {});
}

// The gradient before the ReLU; conv is what came out of the convolution.
Array before_pooling(const ConvPool& c, const Array& dy, const Array& conv) {
  if (c.max) return reference::max_pool2d_backward(dy, conv, {}, true);
  return reference::avg_pool2d_backward(dy, {}, conv, conv.shape);
}

// Bit 2 * row + column of each window: where the gradient of 1 arrives.
Array code_of(const ConvPool& c, const Array& conv) {
  const Array reached = before_pooling(c, Array(c.y, 1.0), conv);
  Array code(c.y);
  for (std::int64_t n = 0; n < c.y[0]; ++n) {
    for (std::int64_t h = 0; h < c.y[1]; ++h) {
      for (std::int64_t w = 0; w < c.y[2]; ++w) {
        for (std::int64_t o = 0; o < c.y[3]; ++o) {
          for (int i = 0; i < 4; ++i) {
            if (reached.at(n, 2 * h + i / 2, 2 * w + i % 2, o) != 0) code.at(n, h, w, o) += 1 << i;
          }
        }
      }
    }
  }
  return code;
}

Case conv2d_pool_forward(const Sizes& s, DType dtype) {
  const ConvPool c = conv_pool("conv2d_pool_forward", s);
  return {.inputs = {{c.x, dtype, -1, 1, 0}, {c.w, dtype}, {.shape = {s["o"]}, .dtype = dtype}},
          .outputs = {{c.y, dtype, 0}},
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                Tensor code = Tensor::empty(c.y, DType::u8, in[0].device());
                if (FusedConv2dPool* fused = b.fused_conv2d_pool(in[0], in[1], c.params)) {
                  return fused->forward(in[0], in[1], in[2], c.params, out[0], code);
                }
                Tensor conv = Tensor::empty(c.conv, dtype, in[0].device());
                b.conv2d_forward(in[0], in[1], in[2], c.params.conv, !c.max, conv);
                if (c.max) return b.max_pool2d_forward(conv, {}, true, out[0], code);
                b.avg_pool2d_forward(conv, {}, out[0]);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            return {pooled(c, reference::conv2d_forward(in[0], in[1], in[2], c.params.conv, true))};
          },
          .flops = 2 * c.macs,
          .nbytes = nbytes_of(c.x, dtype) + nbytes_of(c.w, dtype) + nbytes_of({s["o"]}, dtype) + nbytes_of(c.y, dtype) +
                    nbytes_of(c.y, DType::u8),
          .terms = c.window};
}

// What the forward pass left, for a convolution whose output is `conv`: dy, code, and what the two primitives read
// instead of the code. With values above 0, as the position of the largest is the backend's own matter elsewhere.
std::vector<Input> saved(const ConvPool& c, DType dtype, int cut) {
  const Array random = reference::random_array(c.conv, c.max ? 0.01 : -1, 1, 11);
  const Array conv = reference::array_of(reference::tensor_of(random, dtype));
  reference::MaxPool largest = reference::max_pool2d_forward(conv, {}, true);
  return {{.shape = c.y, .dtype = dtype, .cut = cut},
          {.shape = c.y, .dtype = DType::u8, .cut = cut, .values = code_of(c, conv)},
          {.shape = c.y, .dtype = DType::u8, .cut = cut, .values = std::move(largest.argmax)},
          {.shape = c.y, .dtype = dtype, .cut = cut, .values = std::move(largest.y)},
          {.shape = c.conv, .dtype = dtype, .cut = cut, .values = conv}};
}

// The places of what saved() returns, behind the two operands of the convolution.
enum : std::size_t { kDy = 2, kCode, kArgmax, kLargest, kConv };

void pooling_backward(Backend& b, const ConvPool& c, const Tensors& in, Tensor& dconv) {
  if (c.max) return b.max_pool2d_backward(in[kDy], in[kLargest], in[kArgmax], {}, dconv, WriteMode::store);
  b.avg_pool2d_backward(in[kDy], {}, in[kConv], dconv, WriteMode::store);
}

Case conv2d_pool_backward_data(const Sizes& s, DType dtype) {
  const ConvPool c = conv_pool("conv2d_pool_backward_data", s);
  const bool mask = s["mask"] != 0;
  std::vector<Input> inputs{{c.w, dtype}, {.shape = c.x, .dtype = dtype, .cut = 0, .undefined = !mask}};
  for (Input& input : saved(c, dtype, 0)) inputs.push_back(std::move(input));
  return {
      .inputs = std::move(inputs),
      .outputs = {{c.x, dtype, 0}},
      .call =
          [=](Backend& b, const Tensors& in, Tensors& out) {
            if (FusedConv2dPool* fused = b.fused_conv2d_pool(out[0], in[0], c.params)) {
              return fused->backward_data(in[kDy], in[kCode], in[0], c.params, in[1], out[0], WriteMode::store);
            }
            Tensor dconv = Tensor::empty(c.conv, dtype, out[0].device());
            pooling_backward(b, c, in, dconv);
            b.conv2d_backward_data(dconv, in[0], c.params.conv, in[1], out[0], WriteMode::store);
          },
      .reference = [=](const Arrays& in) -> Arrays {
        const Shape x{in[kDy].dim(0), c.x[1], c.x[2], c.x[3]};
        return {reference::conv2d_backward_data(before_pooling(c, in[kDy], in[kConv]), in[0], c.params.conv, in[1], x)};
      },
      .flops = 2 * c.macs,
      .nbytes = nbytes_of(c.y, dtype) + nbytes_of(c.y, DType::u8) + nbytes_of(c.w, dtype) +
                nbytes_of(c.x, dtype) * (mask ? 2 : 1),
      .terms = static_cast<double>(c.w[1] * c.w[2] * c.w[0])};
}

// alone: no data gradient is computed beside it, so that the two primitives have the pooling's gradient to compute
// here; else it is there already.
Case conv2d_pool_backward_weight(const Sizes& s, DType dtype) {
  const ConvPool c = conv_pool("conv2d_pool_backward_weight", s);
  const bool alone = s["alone"] != 0;
  std::vector<Input> inputs{{c.x, dtype}, {.shape = c.conv, .dtype = dtype, .cut = 3}};
  for (Input& input : saved(c, dtype, 3)) inputs.push_back(std::move(input));
  // dy is given, because the gradient before the pooling follows from it.
  const Array dy = reference::array_of(reference::tensor_of(reference::random_array(c.y, -1, 1, 12), dtype));
  inputs[1].values = before_pooling(c, dy, *inputs[kConv].values);
  inputs[kDy].values = dy;
  return {.inputs = std::move(inputs),
          .outputs = {{c.w, dtype, 0}, {{s["o"]}, dtype, 0}},
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                if (FusedConv2dPool* fused = b.fused_conv2d_pool(in[0], out[0], c.params)) {
                  return fused->backward_weight(in[0], in[kDy], in[kCode], c.params, out[0], &out[1], WriteMode::store);
                }
                Tensor dconv = alone ? Tensor::empty(c.conv, dtype, in[0].device()) : in[1];
                if (alone) pooling_backward(b, c, in, dconv);
                b.conv2d_backward_weight(in[0], dconv, c.params.conv, out[0], &out[1], WriteMode::store);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            const Array dconv = before_pooling(c, in[kDy], in[kConv]);
            const Shape w{dconv.dim(3), c.w[1], c.w[2], c.w[3]};
            return {reference::conv2d_backward_weight(in[0], dconv, c.params.conv, w), reference::bias_gradient(dconv)};
          },
          .flops = 2 * c.macs,
          .nbytes = nbytes_of(c.x, dtype) + nbytes_of(c.y, dtype) + nbytes_of(c.y, DType::u8) + nbytes_of(c.w, dtype) +
                    nbytes_of({s["o"]}, dtype),
          .terms = static_cast<double>(c.conv[0] * c.conv[1] * c.conv[2])};
}

}  // namespace

void add_fused_rows(std::vector<OpRow>& rows) {
  const auto sizes = [](std::initializer_list<std::pair<std::string, std::int64_t>> flags) {
    auto values =
        Sizes{{"n", 256}, {"h", 28}, {"w", 28}, {"c", 1}, {"o", 20}, {"k", 3}, {"stride", 1}, {"padding", 0}}.values();
    values.insert(values.end(), {{"average", 0}});
    values.insert(values.end(), flags);
    return Sizes(values);
  };
  rows.push_back({"conv2d_pool_forward", "convolution with bias, ReLU, and pooling by 2x2: largest values or averages",
                  sizes({}), conv2d_pool_forward});
  rows.push_back({"conv2d_pool_backward_data", "gradient of its input; mask: times a ReLU mask", sizes({{"mask", 0}}),
                  conv2d_pool_backward_data});
  rows.push_back({"conv2d_pool_backward_weight",
                  "gradient of its weights and bias; alone: without a data gradient beside it", sizes({{"alone", 1}}),
                  conv2d_pool_backward_weight});
}

}  // namespace heddle::tools::bench
