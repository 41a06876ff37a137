// Convolutions, linear layers and matrix products.
#include "reference/reference.h"
#include "tools/bench/op_row.h"

namespace heddle::tools::bench {
namespace {

using Tensors = std::vector<Tensor>;

// ---- convolution: x (N,H,W,C), w (O,K,K,C/groups), y (N,OH,OW,O)
// -----------------------------------------------------

struct Convolution {
  Conv2dParams params;
  Shape x, w, y;
  double macs = 0;    // of any of the three passes, padding included
  double window = 0;  // products of one output value
  int batch_cut = 0, channel_cut = 0;
};

Convolution convolution(const char* op, const Sizes& s) {
  Convolution c;
  c.params = {.stride_h = s["stride"],
              .stride_w = s["stride"],
              .padding_h = s["padding"],
              .padding_w = s["padding"],
              .dilation_h = s["dilation"],
              .dilation_w = s["dilation"],
              .groups = s["groups"]};
  const std::int64_t reach = s["dilation"] * (s["k"] - 1) + 1;
  require_sizes(s["n"] > 0 && s["h"] > 0 && s["w"] > 0 && s["c"] > 0 && s["o"] > 0 && s["k"] > 0 && s["stride"] > 0 &&
                    s["dilation"] > 0 && s["groups"] > 0,
                op, s, "all sizes but padding must be above 0");
  require_sizes(s["c"] % s["groups"] == 0 && s["o"] % s["groups"] == 0, op, s, "groups must divide c and o");
  require_sizes(s["h"] + 2 * s["padding"] >= reach && s["w"] + 2 * s["padding"] >= reach, op, s,
                "the window is larger than the padded image");
  c.x = {s["n"], s["h"], s["w"], s["c"]};
  c.w = {s["o"], s["k"], s["k"], s["c"] / s["groups"]};
  c.y = reference::conv2d_output_shape(c.x, c.w, c.params);
  c.window = static_cast<double>(c.w.numel() / s["o"]);
  c.macs = static_cast<double>(c.y.numel()) * c.window;
  // A part of the output channels meets a part of the input channels when there are groups.
  c.channel_cut = s["groups"] == 1 ? 3 : kWhole;
  return c;
}

Sizes convolution_sizes(std::initializer_list<std::pair<std::string, std::int64_t>> flags) {
  Sizes sizes{{"n", 256}, {"h", 14}, {"w", 14}, {"c", 32}, {"o", 64}, {"k", 3}, {"stride", 1}, {"padding", 1}};
  auto values = sizes.values();
  values.insert(values.end(), {{"dilation", 1}, {"groups", 1}});
  values.insert(values.end(), flags);
  return Sizes(values);
}

Case conv2d_forward(const Sizes& s, DType dtype) {
  const Convolution c = convolution("conv2d_forward", s);
  const bool bias = s["bias"] != 0, relu = s["relu"] != 0;
  return {.inputs = {{c.x, dtype, -1, 1, 0}, {c.w, dtype}, {.shape = {s["o"]}, .dtype = dtype, .undefined = !bias}},
          .outputs = {{c.y, dtype, 0}},
          .call = [=](Backend& b, const Tensors& in,
                      Tensors& out) { b.conv2d_forward(in[0], in[1], in[2], c.params, relu, out[0]); },
          .reference = [=](const Arrays& in) -> Arrays {
            return {reference::conv2d_forward(in[0], in[1], in[2], c.params, relu)};
          },
          .flops = 2 * c.macs,
          .terms = c.window};
}

Case conv2d_backward_data(const Sizes& s, DType dtype) {
  const Convolution c = convolution("conv2d_backward_data", s);
  const bool mask = s["mask"] != 0;
  return {
      .inputs = {{c.y, dtype, -1, 1, 0}, {c.w, dtype}, {.shape = c.x, .dtype = dtype, .cut = 0, .undefined = !mask}},
      .outputs = {{c.x, dtype, 0}},
      .call = [=](Backend& b, const Tensors& in,
                  Tensors& out) { b.conv2d_backward_data(in[0], in[1], c.params, in[2], out[0], WriteMode::store); },
      .reference = [=](const Arrays& in) -> Arrays {
        const Shape x{in[0].dim(0), c.x[1], c.x[2], c.x[3]};
        return {reference::conv2d_backward_data(in[0], in[1], c.params, in[2], x)};
      },
      .flops = 2 * c.macs,
      .terms = static_cast<double>(c.w[1] * c.w[2] * (c.y[3] / c.params.groups))};
}

Case conv2d_backward_weight(const Sizes& s, DType dtype) {
  const Convolution c = convolution("conv2d_backward_weight", s);
  const bool bias = s["bias"] != 0;
  std::vector<Output> outputs = {{c.w, dtype, c.channel_cut == kWhole ? kWhole : 0}};
  if (bias) outputs.push_back({{s["o"]}, dtype, c.channel_cut == kWhole ? kWhole : 0});
  return {.inputs = {{c.x, dtype}, {c.y, dtype, -1, 1, c.channel_cut}},
          .outputs = outputs,
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                b.conv2d_backward_weight(in[0], in[1], c.params, out[0], bias ? &out[1] : nullptr, WriteMode::store);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            const Shape w{in[1].dim(3), c.w[1], c.w[2], c.w[3]};
            Arrays result{reference::conv2d_backward_weight(in[0], in[1], c.params, w)};
            if (bias) result.push_back(reference::bias_gradient(in[1]));
            return result;
          },
          .flops = 2 * c.macs,
          .terms = static_cast<double>(c.y[0] * c.y[1] * c.y[2])};
}

// ---- linear: x (N,in), w (out,in), y (N,out)
// -------------------------------------------------------------------------

void require_linear(const char* op, const Sizes& s) {
  require_sizes(s["n"] > 0 && s["in"] > 0 && s["out"] > 0, op, s, "n, in and out must be above 0");
}

double linear_flops(const Sizes& s) {
  return 2 * static_cast<double>(s["n"]) * static_cast<double>(s["in"]) * static_cast<double>(s["out"]);
}

Case linear_forward(const Sizes& s, DType dtype) {
  require_linear("linear_forward", s);
  const bool bias = s["bias"] != 0, relu = s["relu"] != 0;
  return {
      .inputs = {{{s["n"], s["in"]}, dtype, -1, 1, 0},
                 {{s["out"], s["in"]}, dtype},
                 {.shape = {s["out"]}, .dtype = dtype, .undefined = !bias}},
      .outputs = {{{s["n"], s["out"]}, dtype, 0}},
      .call = [=](Backend& b, const Tensors& in, Tensors& out) { b.linear_forward(in[0], in[1], in[2], relu, out[0]); },
      .reference = [=](const Arrays& in) -> Arrays { return {reference::linear_forward(in[0], in[1], in[2], relu)}; },
      .flops = linear_flops(s),
      .terms = static_cast<double>(s["in"])};
}

Case linear_backward_data(const Sizes& s, DType dtype) {
  require_linear("linear_backward_data", s);
  const bool mask = s["mask"] != 0;
  return {
      .inputs = {{{s["n"], s["out"]}, dtype, -1, 1, 0},
                 {{s["out"], s["in"]}, dtype},
                 {.shape = {s["n"], s["in"]}, .dtype = dtype, .cut = 0, .undefined = !mask}},
      .outputs = {{{s["n"], s["in"]}, dtype, 0}},
      .call = [](Backend& b, const Tensors& in,
                 Tensors& out) { b.linear_backward_data(in[0], in[1], in[2], out[0], WriteMode::store); },
      .reference = [](const Arrays& in) -> Arrays { return {reference::linear_backward_data(in[0], in[1], in[2])}; },
      .flops = linear_flops(s),
      .terms = static_cast<double>(s["out"])};
}

Case linear_backward_weight(const Sizes& s, DType dtype) {
  require_linear("linear_backward_weight", s);
  const bool bias = s["bias"] != 0;
  std::vector<Output> outputs = {{{s["out"], s["in"]}, dtype, 0}};
  if (bias) outputs.push_back({{s["out"]}, dtype, 0});
  return {.inputs = {{{s["n"], s["in"]}, dtype}, {{s["n"], s["out"]}, dtype, -1, 1, 1}},
          .outputs = outputs,
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                b.linear_backward_weight(in[0], in[1], out[0], bias ? &out[1] : nullptr, WriteMode::store);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            Arrays result{reference::linear_backward_weight(in[0], in[1])};
            if (bias) result.push_back(reference::bias_gradient(in[1]));
            return result;
          },
          .flops = linear_flops(s),
          .terms = static_cast<double>(s["n"])};
}

Case matmul(const Sizes& s, DType dtype) {
  require_sizes(s["m"] > 0 && s["n"] > 0 && s["k"] > 0 && s["batch"] > 0, "matmul", s,
                "m, n, k and batch must be above 0");
  const bool ta = s["transpose_a"] != 0, tb = s["transpose_b"] != 0;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, bool transposed) {
    if (transposed) std::swap(rows, columns);
    return s["batch"] == 1 ? Shape{rows, columns} : Shape{s["batch"], rows, columns};
  };
  const bool cuts = s["batch"] == 1;
  const MatmulParams params{.transpose_a = ta, .transpose_b = tb};
  return {.inputs = {{matrix(s["m"], s["k"], ta), dtype, -1, 1,
                      !cuts ? 0
                      : ta  ? 1
                            : 0},
                     {matrix(s["k"], s["n"], tb), dtype, -1, 1, cuts ? kWhole : 0}},
          .outputs = {{matrix(s["m"], s["n"], false), dtype, 0}},
          .call = [=](Backend& b, const Tensors& in,
                      Tensors& out) { b.matmul(in[0], in[1], params, out[0], WriteMode::store); },
          .reference = [=](const Arrays& in) -> Arrays { return {reference::matmul(in[0], in[1], params)}; },
          .flops = 2 * static_cast<double>(s["batch"]) * static_cast<double>(s["m"]) * static_cast<double>(s["n"]) *
                   static_cast<double>(s["k"]),
          .terms = static_cast<double>(s["k"])};
}

}  // namespace

void add_product_rows(std::vector<OpRow>& rows) {
  rows.push_back({"conv2d_forward", "convolution, with bias and ReLU if asked",
                  convolution_sizes({{"bias", 1}, {"relu", 1}}), conv2d_forward});
  rows.push_back({"conv2d_backward_data", "gradient of its input; mask: times a ReLU mask",
                  convolution_sizes({{"mask", 0}}), conv2d_backward_data});
  rows.push_back({"conv2d_backward_weight", "gradient of its weights, and of the bias",
                  convolution_sizes({{"bias", 1}}), conv2d_backward_weight});
  rows.push_back({"linear_forward",
                  "x w^T, with bias and ReLU if asked",
                  {{"n", 256}, {"in", 800}, {"out", 128}, {"bias", 1}, {"relu", 1}},
                  linear_forward});
  rows.push_back({"linear_backward_data",
                  "gradient of its input; mask: times a ReLU mask",
                  {{"n", 256}, {"in", 800}, {"out", 128}, {"mask", 0}},
                  linear_backward_data});
  rows.push_back({"linear_backward_weight",
                  "gradient of its weights, and of the bias",
                  {{"n", 256}, {"in", 800}, {"out", 128}, {"bias", 1}},
                  linear_backward_weight});
  rows.push_back({"matmul",
                  "product of two matrices, or of a batch of them",
                  {{"batch", 1}, {"m", 512}, {"n", 512}, {"k", 512}, {"transpose_a", 0}, {"transpose_b", 0}},
                  matmul});
}

}  // namespace heddle::tools::bench
