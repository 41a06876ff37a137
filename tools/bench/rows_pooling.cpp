// Pooling. The positions that the backward passes of max pooling read come from the reference of the forward pass.
#include "reference/reference.h"
#include "reference/values.h"
#include "tools/bench/op_row.h"

namespace heddle::tools::bench {
namespace {

using Tensors = std::vector<Tensor>;

double nbytes_of_tensors(std::initializer_list<std::pair<Shape, DType>> tensors) {
  double nbytes = 0;
  for (const auto& [shape, dtype] : tensors) {
    nbytes += static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
  }
  return nbytes;
}

// Random values as they are once stored in dtype.
Array stored(const Shape& shape, double low, double high, DType dtype) {
  return reference::array_of(reference::tensor_of(reference::random_array(shape, low, high, 11), dtype));
}

// Batches of (N,H,W,C), cut between images.
Input images(const Shape& shape, DType dtype, double low = -1, double high = 1) { return {shape, dtype, low, high, 0}; }

struct Pooling {
  Pool2dParams params;
  Shape x, y;
  DType position = DType::u8;
};

Pooling pooling(const char* op, const Sizes& s) {
  require_sizes(s["n"] > 0 && s["h"] > 0 && s["w"] > 0 && s["c"] > 0 && s["k"] > 0 && s["stride"] > 0, op, s,
                "all sizes but padding must be above 0");
  require_sizes(s["padding"] * 2 <= s["k"], op, s, "padding must be at most half of k");
  require_sizes(s["h"] + 2 * s["padding"] >= s["k"] && s["w"] + 2 * s["padding"] >= s["k"], op, s,
                "the window is larger than the padded image");
  Pooling p;
  p.params = {.kernel_h = s["k"],
              .kernel_w = s["k"],
              .stride_h = s["stride"],
              .stride_w = s["stride"],
              .padding_h = s["padding"],
              .padding_w = s["padding"]};
  p.x = {s["n"], s["h"], s["w"], s["c"]};
  require_sizes(p.x.numel() <= kMaxNumel, op, s, "too large");
  p.y = reference::pool2d_output_shape(p.x, p.params);
  p.position = s["k"] * s["k"] <= 255 ? DType::u8 : DType::i32;
  return p;
}

// With ReLU the values are positive: where a ReLU cuts, the position is the backend's own matter.
double lowest(bool relu) { return relu ? 0.01 : -1; }

Case max_pool2d_forward(const Sizes& s, DType dtype) {
  const Pooling p = pooling("max_pool2d_forward", s);
  const bool relu = s["relu"] != 0;
  return {.inputs = {images(p.x, dtype, lowest(relu))},
          .outputs = {{p.y, dtype, 0}, {p.y, p.position, 0}},
          .call = [=](Backend& b, const Tensors& in,
                      Tensors& out) { b.max_pool2d_forward(in[0], p.params, relu, out[0], out[1]); },
          .reference = [=](const Arrays& in) -> Arrays {
            reference::MaxPool pool = reference::max_pool2d_forward(in[0], p.params, relu);
            return {std::move(pool.y), std::move(pool.argmax)};
          }};
}

Case max_pool2d_backward(const Sizes& s, DType dtype) {
  const Pooling p = pooling("max_pool2d_backward", s);
  const bool relu = s["relu"] != 0;
  Array x = stored(p.x, lowest(relu), 1, dtype);
  reference::MaxPool forward = reference::max_pool2d_forward(x, p.params, relu);
  // The call does not read x; the reference does.
  return {.inputs = {images(p.y, dtype),
                     {.shape = p.y, .dtype = dtype, .cut = 0, .values = std::move(forward.y), .undefined = !relu},
                     {.shape = p.y, .dtype = p.position, .cut = 0, .values = std::move(forward.argmax)},
                     {.shape = p.x, .dtype = dtype, .cut = 0, .values = std::move(x)}},
          .outputs = {{p.x, dtype, 0}},
          .call = [=](Backend& b, const Tensors& in,
                      Tensors& out) { b.max_pool2d_backward(in[0], in[1], in[2], p.params, out[0], WriteMode::store); },
          .reference = [=](const Arrays& in) -> Arrays {
            return {reference::max_pool2d_backward(in[0], in[3], p.params, relu)};
          },
          .nbytes = nbytes_of_tensors({{p.y, dtype}, {p.y, p.position}, {p.x, dtype}}) +
                    (relu ? nbytes_of_tensors({{p.y, dtype}}) : 0)};
}

Case avg_pool2d_forward(const Sizes& s, DType dtype) {
  const Pooling p = pooling("avg_pool2d_forward", s);
  return {.inputs = {images(p.x, dtype)},
          .outputs = {{p.y, dtype, 0}},
          .call = [=](Backend& b, const Tensors& in, Tensors& out) { b.avg_pool2d_forward(in[0], p.params, out[0]); },
          .reference = [=](const Arrays& in) -> Arrays { return {reference::avg_pool2d_forward(in[0], p.params)}; }};
}

Case avg_pool2d_backward(const Sizes& s, DType dtype) {
  const Pooling p = pooling("avg_pool2d_backward", s);
  const bool mask = s["mask"] != 0;
  return {.inputs = {images(p.y, dtype), {.shape = p.x, .dtype = dtype, .cut = 0, .undefined = !mask}},
          .outputs = {{p.x, dtype, 0}},
          .call = [=](Backend& b, const Tensors& in,
                      Tensors& out) { b.avg_pool2d_backward(in[0], p.params, in[1], out[0], WriteMode::store); },
          .reference = [=](const Arrays& in) -> Arrays {
            const Shape x{in[0].dim(0), p.x[1], p.x[2], p.x[3]};
            return {reference::avg_pool2d_backward(in[0], p.params, in[1], x)};
          }};
}

struct AdaptivePooling {
  Shape x, y;
};

AdaptivePooling adaptive(const char* op, const Sizes& s) {
  for (const auto& [name, value] : s.values()) require_sizes(value > 0, op, s, "all sizes must be above 0");
  const AdaptivePooling p{{s["n"], s["h"], s["w"], s["c"]}, {s["n"], s["out_h"], s["out_w"], s["c"]}};
  require_sizes(p.x.numel() <= kMaxNumel && p.y.numel() <= kMaxNumel, op, s, "too large");
  return p;
}

Case adaptive_max_pool2d_forward(const Sizes& s, DType dtype) {
  const AdaptivePooling p = adaptive("adaptive_max_pool2d_forward", s);
  return {.inputs = {images(p.x, dtype)},
          .outputs = {{p.y, dtype, 0}, {p.y, DType::i32, 0}},
          .call = [](Backend& b, const Tensors& in,
                     Tensors& out) { b.adaptive_pool2d_forward(PoolKind::max, in[0], out[0], out[1]); },
          .reference = [=](const Arrays& in) -> Arrays {
            reference::MaxPool pool = reference::adaptive_max_pool2d_forward(in[0], p.y[1], p.y[2]);
            return {std::move(pool.y), std::move(pool.argmax)};
          }};
}

Case adaptive_max_pool2d_backward(const Sizes& s, DType dtype) {
  const AdaptivePooling p = adaptive("adaptive_max_pool2d_backward", s);
  Array x = stored(p.x, -1, 1, dtype);
  reference::MaxPool forward = reference::adaptive_max_pool2d_forward(x, p.y[1], p.y[2]);
  return {
      .inputs = {images(p.y, dtype),
                 {.shape = p.y, .dtype = DType::i32, .cut = 0, .values = std::move(forward.argmax)},
                 {.shape = p.x, .dtype = dtype, .cut = 0, .values = std::move(x)}},
      .outputs = {{p.x, dtype, 0}},
      .call = [](Backend& b, const Tensors& in,
                 Tensors& out) { b.adaptive_pool2d_backward(PoolKind::max, in[0], in[1], out[0], WriteMode::store); },
      .reference = [](const Arrays& in) -> Arrays { return {reference::adaptive_max_pool2d_backward(in[0], in[2])}; },
      .nbytes = nbytes_of_tensors({{p.y, dtype}, {p.y, DType::i32}, {p.x, dtype}})};
}

Case adaptive_avg_pool2d_forward(const Sizes& s, DType dtype) {
  const AdaptivePooling p = adaptive("adaptive_avg_pool2d_forward", s);
  return {.inputs = {images(p.x, dtype)},
          .outputs = {{p.y, dtype, 0}},
          .call =
              [](Backend& b, const Tensors& in, Tensors& out) {
                Tensor none;
                b.adaptive_pool2d_forward(PoolKind::avg, in[0], out[0], none);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            return {reference::adaptive_avg_pool2d_forward(in[0], p.y[1], p.y[2])};
          }};
}

Case adaptive_avg_pool2d_backward(const Sizes& s, DType dtype) {
  const AdaptivePooling p = adaptive("adaptive_avg_pool2d_backward", s);
  return {.inputs = {images(p.y, dtype)},
          .outputs = {{p.x, dtype, 0}},
          .call =
              [](Backend& b, const Tensors& in, Tensors& out) {
                b.adaptive_pool2d_backward(PoolKind::avg, in[0], Tensor(), out[0], WriteMode::store);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            const Shape x{in[0].dim(0), p.x[1], p.x[2], p.x[3]};
            return {reference::adaptive_avg_pool2d_backward(in[0], x)};
          }};
}

}  // namespace

void add_pooling_rows(std::vector<OpRow>& rows) {
  const auto sizes = [](std::initializer_list<std::pair<std::string, std::int64_t>> flags) {
    auto values = Sizes{{"n", 256}, {"h", 28}, {"w", 28}, {"c", 32}, {"k", 2}, {"stride", 2}, {"padding", 0}}.values();
    values.insert(values.end(), flags);
    return Sizes(values);
  };
  const Sizes any{{"n", 256}, {"h", 14}, {"w", 14}, {"c", 64}, {"out_h", 1}, {"out_w", 1}};
  rows.push_back({"max_pool2d_forward", "largest of each window, and where it is; with ReLU if asked",
                  sizes({{"relu", 1}}), max_pool2d_forward});
  rows.push_back({"max_pool2d_backward", "its gradient", sizes({{"relu", 1}}), max_pool2d_backward});
  rows.push_back({"avg_pool2d_forward", "mean of each window", sizes({}), avg_pool2d_forward});
  rows.push_back(
      {"avg_pool2d_backward", "its gradient; mask: times a ReLU mask", sizes({{"mask", 1}}), avg_pool2d_backward});
  rows.push_back({"adaptive_max_pool2d_forward", "to a given size, largest values", any, adaptive_max_pool2d_forward});
  rows.push_back({"adaptive_max_pool2d_backward", "its gradient", any, adaptive_max_pool2d_backward});
  rows.push_back({"adaptive_avg_pool2d_forward", "to a given size, means", any, adaptive_avg_pool2d_forward});
  rows.push_back({"adaptive_avg_pool2d_backward", "its gradient", any, adaptive_avg_pool2d_backward});
}

}  // namespace heddle::tools::bench
