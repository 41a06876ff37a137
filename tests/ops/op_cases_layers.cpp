// Rows of layers, softmax and losses; and the list of all rows.
#include "engine/ops/ops.h"
#include "reference/reference.h"
#include "tests/ops/op_cases.h"

namespace heddle::testing {
namespace {

using reference::Array;
using reference::Arrays;
using Variables = std::vector<Variable>;

Array sum_of(const Array& x, double divisor = 1) {
  double sum = 0;
  for (const double value : x.values) sum += value;
  return Array(Shape{}, sum / divisor);
}

void add_convolutions(std::vector<OpCase>& rows) {
  struct Row {
    const char* name;
    Shape x, w, y;
    Conv2dParams params;
  };
  const Row convolutions[] = {
      {"3x3", {2, 5, 6, 3}, {4, 3, 3, 3}, {2, 3, 4, 4}, {}},
      {"padded", {2, 5, 5, 2}, {3, 3, 3, 2}, {2, 5, 5, 3}, {.padding_h = 1, .padding_w = 1}},
      {"strided, uncovered edge", {1, 6, 6, 2}, {3, 3, 3, 2}, {1, 2, 2, 3}, {.stride_h = 2, .stride_w = 2}},
      {"oblong",
       {2, 6, 5, 2},
       {2, 2, 3, 2},
       {2, 3, 5, 2},
       {.stride_h = 2, .stride_w = 1, .padding_h = 0, .padding_w = 1}},
      {"dilated", {1, 7, 7, 2}, {2, 3, 3, 2}, {1, 3, 3, 2}, {.dilation_h = 2, .dilation_w = 2}},
      {"grouped", {2, 4, 4, 4}, {6, 3, 3, 2}, {2, 2, 2, 6}, {.groups = 2}},
      {"1x1 strided", {2, 5, 5, 3}, {2, 1, 1, 3}, {2, 3, 3, 2}, {.stride_h = 2, .stride_w = 2}},
      {"one channel 5x5", {2, 7, 7, 1}, {6, 5, 5, 1}, {2, 3, 3, 6}, {}},
  };
  for (const Row& row : convolutions) {
    const ParityInput x = random_input(row.x), w = random_input(row.w), b = random_input(Shape{row.w[0]});
    const Conv2dParams p = row.params;
    rows.push_back(
        {.name = join_text("conv2d without bias ", row.name),
         .inputs = {x, w},
         .shape = row.y,
         .call = [=](const Variables& in) { return ops::conv2d(in[0], in[1], {}, p); },
         .reference = [=](const Arrays& in) { return reference::conv2d_forward(in[0], in[1], Array(), p, false); },
         .tolerance = 4});
    rows.push_back(
        {.name = join_text("conv2d ", row.name),
         .inputs = {x, w, b},
         .shape = row.y,
         .call = [=](const Variables& in) { return ops::conv2d(in[0], in[1], in[2], p); },
         .reference = [=](const Arrays& in) { return reference::conv2d_forward(in[0], in[1], in[2], p, false); },
         .tolerance = 4});
    rows.push_back(
        {.name = join_text("conv2d_relu ", row.name),
         .inputs = {x, w, b},
         .shape = row.y,
         .call = [=](const Variables& in) { return ops::conv2d_relu(in[0], in[1], in[2], p); },
         .reference = [=](const Arrays& in) { return reference::conv2d_forward(in[0], in[1], in[2], p, true); },
         .tolerance = 4});
  }
}

// Batches of 16 and 12 are for the CPU's kernel that does both at once; the others go through two ops.
void add_convolutions_with_pooling(std::vector<OpCase>& rows) {
  struct Row {
    const char* name;
    Shape x, w, y;
    Conv2dParams params = {};
    Pool2dParams pool = {};
  };
  const Row all[] = {
      {"one channel", {16, 6, 6, 1}, {3, 3, 3, 1}, {16, 2, 2, 3}},
      {"odd sizes", {12, 7, 5, 2}, {5, 3, 2, 2}, {12, 2, 2, 5}},
      {"strided and padded",
       {16, 6, 7, 3},
       {2, 3, 3, 3},
       {16, 1, 2, 2},
       {.stride_h = 2, .stride_w = 2, .padding_h = 1, .padding_w = 1}},
      {"few images", {2, 6, 5, 2}, {3, 3, 3, 2}, {2, 2, 1, 3}},
      {"grouped", {16, 5, 5, 4}, {2, 2, 2, 2}, {16, 2, 2, 2}, {.groups = 2}},
      {"overlapping windows",
       {12, 6, 6, 1},
       {2, 2, 2, 1},
       {12, 3, 3, 2},
       {},
       {.kernel_h = 3, .kernel_w = 3, .padding_h = 1, .padding_w = 1}},
  };
  for (const Row& row : all) {
    for (const PoolKind kind : {PoolKind::max, PoolKind::avg}) {
      // Values that bf16 makes equal have another largest one in f64.
      std::vector<DType> dtypes{DType::f32, DType::f64};
      if (kind == PoolKind::avg) dtypes.push_back(DType::bf16);
      for (const bool bias : {false, true}) {
        const Conv2dParams p = row.params;
        const Pool2dParams pool = row.pool;
        std::vector<ParityInput> inputs{random_input(row.x), random_input(row.w)};
        if (bias) inputs.push_back(random_input(Shape{row.w[0]}));
        rows.push_back({.name = join_text("conv2d_relu_", kind == PoolKind::max ? "max" : "avg", "_pool2d ",
                                          bias ? "" : "without bias ", row.name),
                        .inputs = inputs,
                        .shape = row.y,
                        .call =
                            [=](const Variables& in) {
                              const Variable b = bias ? in[2] : Variable();
                              return ops::conv2d_relu_pool2d(in[0], in[1], b, p, {kind, pool});
                            },
                        .reference =
                            [=](const Arrays& in) {
                              const Array y = reference::conv2d_forward(in[0], in[1], bias ? in[2] : Array(), p, true);
                              if (kind == PoolKind::avg) return reference::avg_pool2d_forward(y, pool);
                              return reference::max_pool2d_forward(y, pool, false).y;
                            },
                        .tolerance = 4,
                        .dtypes = dtypes});
      }
    }
  }
}

void add_linear(std::vector<OpCase>& rows) {
  for (const bool relu : {false, true}) {
    for (const Shape& x : {Shape{5, 7}, Shape{2, 3, 7}}) {
      const Shape y = x.rank() == 2 ? Shape{5, 4} : Shape{2, 3, 4};
      rows.push_back(
          {.name = join_text(relu ? "linear_relu " : "linear ", x),
           .inputs = {random_input(x), random_input({4, 7}), random_input({4})},
           .shape = y,
           .call =
               [=](const Variables& in) {
                 return relu ? ops::linear_relu(in[0], in[1], in[2]) : ops::linear(in[0], in[1], in[2]);
               },
           .reference =
               [=](const Arrays& in) {
                 return reference::linear_forward(Array({in[0].numel() / 7, 7}, in[0].values), in[1], in[2], relu);
               }});
    }
  }
  rows.push_back(
      {.name = "linear without bias",
       .inputs = {random_input({5, 7}), random_input({4, 7})},
       .shape = {5, 4},
       .call = [](const Variables& in) { return ops::linear(in[0], in[1]); },
       .reference = [](const Arrays& in) { return reference::linear_forward(in[0], in[1], Array(), false); }});
}

void add_pooling(std::vector<OpCase>& rows) {
  struct Row {
    const char* name;
    Shape x, y;
    Pool2dParams params;
  };
  const Row pools[] = {
      {"2x2", {2, 4, 6, 3}, {2, 2, 3, 3}, {}},
      {"overlapping",
       {1, 7, 7, 2},
       {1, 4, 4, 2},
       {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .padding_h = 1, .padding_w = 1}},
      {"oblong ceil", {1, 5, 7, 2}, {1, 3, 3, 2}, {.kernel_h = 2, .kernel_w = 3, .stride_w = 3, .ceil_mode = true}},
      {"padding counted", {1, 4, 4, 2}, {1, 3, 3, 2}, {.padding_h = 1, .padding_w = 1, .count_include_pad = true}},
      {"padding not counted", {1, 4, 4, 2}, {1, 3, 3, 2}, {.padding_h = 1, .padding_w = 1, .count_include_pad = false}},
  };
  for (const Row& row : pools) {
    const Pool2dParams p = row.params;
    const auto add = [&](const char* name, Variable (*call)(const Variable&, const Pool2dParams&),
                         std::function<Array(const Array&)> expected) {
      rows.push_back({.name = join_text(name, " ", row.name),
                      .inputs = {random_input(row.x)},
                      .shape = row.y,
                      .call = [=](const Variables& in) { return call(in[0], p); },
                      .reference = [=](const Arrays& in) { return expected(in[0]); }});
    };
    add("max_pool2d", ops::max_pool2d, [=](const Array& x) { return reference::max_pool2d_forward(x, p, false).y; });
    add("relu_max_pool2d", ops::relu_max_pool2d,
        [=](const Array& x) { return reference::max_pool2d_forward(x, p, true).y; });
    add("avg_pool2d", ops::avg_pool2d, [=](const Array& x) { return reference::avg_pool2d_forward(x, p); });
  }
  const std::int64_t sizes[][2] = {{1, 1}, {3, 2}, {7, 7}};
  for (const auto& size : sizes) {
    const std::int64_t h = size[0], w = size[1];
    rows.push_back(
        {.name = join_text("adaptive_avg_pool2d ", h, "x", w),
         .inputs = {random_input({2, 5, 4, 3})},
         .shape = {2, h, w, 3},
         .call = [=](const Variables& in) { return ops::adaptive_avg_pool2d(in[0], h, w); },
         .reference = [=](const Arrays& in) { return reference::adaptive_avg_pool2d_forward(in[0], h, w); }});
    rows.push_back(
        {.name = join_text("adaptive_max_pool2d ", h, "x", w),
         .inputs = {random_input({2, 5, 4, 3})},
         .shape = {2, h, w, 3},
         .call = [=](const Variables& in) { return ops::adaptive_max_pool2d(in[0], h, w); },
         .reference = [=](const Arrays& in) { return reference::adaptive_max_pool2d_forward(in[0], h, w).y; }});
  }
}

void add_softmax_and_losses(std::vector<OpCase>& rows) {
  for (const bool log : {false, true}) {
    rows.push_back({.name = log ? "log_softmax" : "softmax",
                    .inputs = {random_input({3, 5}, -3, 3)},
                    .shape = {3, 5},
                    .call = [=](const Variables& in) { return log ? ops::log_softmax(in[0]) : ops::softmax(in[0]); },
                    .reference = [=](const Arrays& in) { return reference::softmax_forward(in[0], log); }});
    rows.push_back(
        {.name = log ? "log_softmax first dimension" : "softmax first dimension",
         .inputs = {random_input({5, 3}, -3, 3)},
         .shape = {5, 3},
         .call = [=](const Variables& in) { return log ? ops::log_softmax(in[0], 0) : ops::softmax(in[0], 0); },
         .reference =
             [=](const Arrays& in) {
               const std::vector<int> swap{1, 0};
               return reference::permute(reference::softmax_forward(reference::permute(in[0], swap), log), swap);
             }});
  }
  const Array labels({6}, {0, 3, 1, -100, 3, 2});
  struct Row {
    const char* name;
    double smoothing;
    bool weighted;
    ops::Reduction reduction;
  };
  const Row losses[] = {
      {"mean", 0, false, ops::Reduction::mean},         {"sum", 0, false, ops::Reduction::sum},
      {"none", 0, false, ops::Reduction::none},         {"mean smoothed", 0.1, false, ops::Reduction::mean},
      {"mean weighted", 0, true, ops::Reduction::mean}, {"sum weighted smoothed", 0.1, true, ops::Reduction::sum},
      {"none weighted", 0, true, ops::Reduction::none},
  };
  for (const Row& row : losses) {
    const Array weight = row.weighted ? Array({4}, {0.5, 1, 2, 0.25}) : Array();
    rows.push_back(
        {.name = join_text("cross_entropy ", row.name),
         .inputs = {random_input({6, 4}, -3, 3), exact_input(labels, DType::i64)},
         .shape = row.reduction == ops::Reduction::none ? Shape{6} : Shape{},
         .call =
             [=](const Variables& in) {
               ops::CrossEntropyOptions options{.label_smoothing = row.smoothing, .reduction = row.reduction};
               if (row.weighted) options.class_weight = tensor_of(weight, in[0].dtype(), in[0].device());
               return ops::cross_entropy(in[0], in[1].data(), options);
             },
         .reference =
             [=](const Arrays& in) {
               const reference::CrossEntropy ce =
                   reference::cross_entropy(in[0], in[1], weight, {.label_smoothing = row.smoothing});
               if (row.reduction == ops::Reduction::none) return ce.row_loss;
               return sum_of(ce.row_loss, row.reduction == ops::Reduction::mean ? ce.stats[tail_slot::kWeightSum] : 1);
             },
         .dtypes = {DType::f32, DType::f64}});
  }
  for (const auto reduction : {ops::Reduction::mean, ops::Reduction::sum, ops::Reduction::none}) {
    rows.push_back({.name = join_text("mse_loss ", static_cast<int>(reduction)),
                    .inputs = {random_input({3, 5}), random_input({3, 5})},
                    .shape = reduction == ops::Reduction::none ? Shape{3, 5} : Shape{},
                    .call = [=](const Variables& in) { return ops::mse_loss(in[0], in[1], reduction); },
                    .reference =
                        [=](const Arrays& in) {
                          Array squares(in[0].shape);
                          for (std::int64_t i = 0; i < squares.numel(); ++i) {
                            squares[i] = (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]);
                          }
                          if (reduction == ops::Reduction::none) return squares;
                          return sum_of(squares, reduction == ops::Reduction::mean ? 15 : 1);
                        }});
  }
  const RandomStream random{.seed = 7, .offset = 3};
  rows.push_back({.name = "dropout",
                  .inputs = {random_input({3, 11})},
                  .shape = {3, 11},
                  .call = [=](const Variables& in) { return ops::dropout(in[0], 0.4, random); },
                  .reference = [=](const Arrays& in) { return reference::dropout(in[0], 0.4, random); }});
}

}  // namespace

std::vector<OpCase> layer_cases() {
  std::vector<OpCase> rows;
  add_convolutions(rows);
  add_convolutions_with_pooling(rows);
  add_linear(rows);
  add_pooling(rows);
  add_softmax_and_losses(rows);
  return rows;
}

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> rows = [] {
    std::vector<OpCase> all = elementwise_cases();
    for (OpCase& row : layer_cases()) all.push_back(std::move(row));
    for (OpCase& row : batch_norm_cases()) all.push_back(std::move(row));
    return all;
  }();
  return rows;
}

}  // namespace heddle::testing
