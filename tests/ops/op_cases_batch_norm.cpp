// Rows of batch norm: each form, in training, with running statistics, and as one of two ranks with equal batches.
#include "engine/ops/ops.h"
#include "reference/reference.h"
#include "tests/ops/op_cases.h"

namespace heddle::testing {
namespace {

using reference::Array;
using reference::Arrays;
using Variables = std::vector<Variable>;

struct Mode {
  const char* name;
  bool training, two_ranks;
};

// Another rank that has the same rows: mean, variance and means of the gradient are those of one.
ops::BatchNormExchange twin() {
  return {.ranks = 2, .gather = [](ops::BatchNormPass, const Tensor& own, Tensor& all) {
            for (std::int64_t r = 0; r < 2; ++r) all.narrow(r, 1).reshape(own.shape()).copy_from(own);
          }};
}

}  // namespace

std::vector<OpCase> batch_norm_cases() {
  std::vector<OpCase> rows;
  const Mode modes[] = {{"", true, false}, {" with running statistics", false, false}, {" of two ranks", true, true}};
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 3, 2, 5}, Shape{3, 2, 2, 16}, Shape{2, 2, 2, 35}}) {
    for (const Mode& mode : modes) {
      for (const bool relu : {false, true}) {
        for (const bool add : {false, true}) {
          if (add && !relu) continue;
          const Shape channels{shape[-1]};
          const Array mean = reference::random_array(channels, -0.3, 0.3, 5);
          const Array var = reference::random_array(channels, 0.5, 2, 6);
          std::vector<ParityInput> inputs{random_input(shape), random_input(channels, 0.5, 2), random_input(channels)};
          if (add) inputs.push_back(random_input(shape));
          rows.push_back(
              {.name = join_text("batch_norm", add ? "_add" : "", relu ? "_relu" : "", mode.name, " ", shape),
               .inputs = inputs,
               .shape = shape,
               .call =
                   [=](const Variables& in) {
                     // Channel vectors of bf16 images are f32.
                     const DType channel = in[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
                     const Device device = in[0].device();
                     ops::BatchNormOptions options{.training = mode.training,
                                                   .running_mean = tensor_of(mean, channel, device),
                                                   .running_var = tensor_of(var, channel, device),
                                                   .eps = 1e-3};
                     if (mode.two_ranks) options.exchange = twin();
                     const Variable scale = ops::to(in[1], channel), shift = ops::to(in[2], channel);
                     if (add) return ops::batch_norm_add_relu(in[0], in[3], scale, shift, options);
                     return relu ? ops::batch_norm_relu(in[0], scale, shift, options)
                                 : ops::batch_norm(in[0], scale, shift, options);
                   },
               .reference =
                   [=](const Arrays& in) {
                     const reference::BatchNormSettings settings{
                         .relu = relu, .batch_statistics = mode.training, .eps = 1e-3};
                     const Array addend = add ? in[3] : Array();
                     return reference::batch_norm_forward(in[0], in[1], in[2], addend, settings, mean, var).y;
                   },
               .tolerance = 4});
        }
      }
    }
  }
  return rows;
}

}  // namespace heddle::testing
