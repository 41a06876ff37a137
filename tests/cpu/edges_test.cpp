// Calls of the CPU backend at the edges of what its implementations take: bf16 that is computed elsewhere, windows that
// meet only padding, tensors without elements.
#include "engine/backend/backend.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;
using reference::Arrays;

namespace {

Backend& cpu() { return backend_for(Device::cpu()); }

}  // namespace

TEST_CASE("cross-entropy of bf16 logits agrees with the reference, with losses in f32") {
  for (const auto& [rows, classes] : {std::pair{5, 10}, {0, 10}, {37, 3}, {3, 1000}}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const bool weighted : {false, true}) {
        const CrossEntropyParams params{.label_smoothing = smoothing, .ignore_index = 2};
        const Shape shape{rows, classes};
        expect_parity({.name = join_text("cross_entropy ", shape, " e ", smoothing, weighted ? " weighted" : ""),
                       .inputs = {random_input(shape, -5, 5), integer_input({rows}, DType::i64, 0, classes - 1),
                                  weighted ? random_input({classes}, 0.2, 2) : no_input()},
                       .outputs = {{{rows}, DType::f32}, {shape}},
                       .call =
                           [&](auto& in, auto& out, WriteMode) {
                             CrossEntropyResult result{.row_loss = out[0], .dlogits = out[1]};
                             cpu().cross_entropy(in[0], in[1], in[2], params, result);
                           },
                       .reference =
                           [&](const Arrays& in) {
                             const auto result = reference::cross_entropy(in[0], in[1], in[2], params);
                             return Arrays{result.row_loss, result.dlogits};
                           },
                       .dtypes = {DType::bf16}});
      }
    }
  }
}

TEST_CASE("weights that meet only padding get gradient zero") {
  struct Row {
    Shape x, w;
    Conv2dParams params;
  };
  const Row rows[] = {
      {{4, 3, 1, 3}, {1, 3, 4, 3}, {.stride_h = 2, .stride_w = 2, .padding_h = 1, .padding_w = 2}},
      {{3, 11, 1, 7}, {33, 3, 4, 7}, {.stride_h = 3, .stride_w = 3, .padding_w = 3}},
      {{2, 3, 1, 16}, {24, 3, 5, 4}, {.stride_h = 3, .stride_w = 2, .padding_w = 3, .groups = 4}},
  };
  for (const Row& r : rows) {
    const Shape y = reference::conv2d_output_shape(r.x, r.w, r.params);
    expect_parity(
        {.name = join_text("conv2d_backward_weight x ", r.x, " w ", r.w),
         .inputs = {random_input(r.x), random_input(y)},
         .outputs = {{r.w}},
         .call = [&](auto& in, auto& out,
                     WriteMode mode) { cpu().conv2d_backward_weight(in[0], in[1], r.params, out[0], nullptr, mode); },
         .reference =
             [&](const Arrays& in) { return Arrays{reference::conv2d_backward_weight(in[0], in[1], r.params, r.w)}; },
         .write_modes = true,
         .thread_invariant = false,
         .tolerance = 6,
         .dtypes = {DType::f32, DType::f64, DType::bf16}});
  }
}

TEST_CASE("a sum over several dimensions of which one is empty is zero everywhere") {
  for (const auto& [shape, mask] : {std::pair{Shape{3, 6, 7, 0}, 13u}, {Shape{0, 2, 4}, 5u}, {Shape{0, 3, 0}, 5u}}) {
    const std::uint32_t dims = mask;
    expect_parity(
        {.name = join_text("sum ", shape, " mask ", dims),
         .inputs = {random_input(shape)},
         .outputs = {{reference::reduce(ReduceKind::sum, Array(shape), dims).shape}},
         .call = [&](auto& in, auto& out, WriteMode mode) { cpu().reduce(ReduceKind::sum, in[0], dims, out[0], mode); },
         .reference = [&](const Arrays& in) { return Arrays{reference::reduce(ReduceKind::sum, in[0], dims)}; },
         .write_modes = true});
  }
}
