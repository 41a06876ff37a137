// Which implementation the CPU backend takes under each choice of kernels, and that both kinds give the same numbers.
#include "engine/backend/kernel_choice.h"

#include "engine/backend/backend.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;

namespace {

Backend& backend() { return backend_for(Device::cpu()); }

// What convolution of this shape runs on under the choice, forward and both passes back.
std::vector<KernelUsed> convolutions(KernelChoice choice, const Shape& x_shape, const Shape& w_shape,
                                     const Conv2dParams& params, DType dtype = DType::f32) {
  const KernelChoiceGuard guard(choice);
  const Tensor x = Tensor::zeros(x_shape, dtype), w = Tensor::zeros(w_shape, dtype);
  Tensor y = Tensor::empty(reference::conv2d_output_shape(x_shape, w_shape, params), dtype);
  Tensor dx = Tensor::empty(x_shape, dtype), dw = Tensor::empty(w_shape, dtype);
  std::vector<KernelUsed> used;
  backend().conv2d_forward(x, w, Tensor(), params, false, y);
  used.push_back(take_noted_kernel().value());
  backend().conv2d_backward_data(y, w, params, Tensor(), dx, WriteMode::store);
  used.push_back(take_noted_kernel().value());
  backend().conv2d_backward_weight(x, y, params, dw, nullptr, WriteMode::store);
  used.push_back(take_noted_kernel().value());
  return used;
}

}  // namespace

TEST_CASE("a choice of kernels holds for convolutions that both kinds can do, whatever is faster") {
  struct Geometry {
    Shape x, w;
    Conv2dParams params;
  };
  const Geometry geometries[] = {
      {{32, 12, 12, 6}, {16, 5, 5, 6}, {}},                                 // the own kernels are faster
      {{2, 14, 14, 64}, {64, 3, 3, 64}, {.padding_h = 1, .padding_w = 1}},  // oneDNN is
      {{4, 1, 1, 32}, {32, 3, 3, 32}, {.padding_h = 1, .padding_w = 1}},    // one matrix product is
  };
  for (const Geometry& g : geometries) {
    INFO(g.x << " " << g.w);
    for (const KernelUsed& used : convolutions(KernelChoice::vendor, g.x, g.w, g.params)) {
      CHECK(used.source == KernelSource::vendor);
      CHECK(used.name == "dnnl");
    }
    for (const KernelUsed& used : convolutions(KernelChoice::own, g.x, g.w, g.params)) {
      CHECK(used.source == KernelSource::own);
      CHECK(used.name != "plain");
    }
  }
}

TEST_CASE("where one kind has nothing, the other one runs") {
  // oneDNN does not compute in double, and the own fast kernels know no groups.
  CHECK(convolutions(KernelChoice::vendor, {1, 4, 4, 2}, {2, 3, 3, 2}, {}, DType::f64)[0].name == "plain");
  CHECK(convolutions(KernelChoice::own, {1, 4, 4, 2}, {2, 3, 3, 1}, {.groups = 2})[0].name == "plain");
}

TEST_CASE("linear layers and products follow the choice") {
  const Tensor x = Tensor::zeros({8, 32}), w = Tensor::zeros({16, 32});
  Tensor y = Tensor::empty({8, 16}), dx = Tensor::empty({8, 32}), dw = Tensor::empty({16, 32});
  const auto names = [&](KernelChoice choice) {
    const KernelChoiceGuard guard(choice);
    std::vector<std::string> found;
    const auto add = [&] { found.emplace_back(take_noted_kernel().value().name); };
    backend().linear_forward(x, w, Tensor(), true, y);
    add();
    backend().linear_backward_data(y, w, x, dx, WriteMode::add);
    add();
    backend().linear_backward_weight(x, y, dw, nullptr, WriteMode::store);
    add();
    backend().matmul(x, w, {.transpose_b = true}, y, WriteMode::store);
    add();
    return found;
  };
  CHECK(names(KernelChoice::automatic) == std::vector<std::string>{"simd", "simd", "simd", "dnnl"});
  CHECK(names(KernelChoice::vendor) == std::vector<std::string>{"dnnl", "dnnl", "dnnl", "dnnl"});
  CHECK(names(KernelChoice::own) == std::vector<std::string>{"simd", "simd", "simd", "plain"});
}

TEST_CASE("both kinds agree with the reference") {
  const Conv2dParams params{.padding_h = 1, .padding_w = 1};
  for (const KernelChoice choice : {KernelChoice::vendor, KernelChoice::own}) {
    const KernelChoiceGuard guard(choice);
    INFO(name_of(choice));
    expect_parity({.name = "conv2d_forward",
                   .inputs = {random_input({3, 6, 5, 4}), random_input({8, 3, 3, 4}), random_input({8})},
                   .outputs = {{.shape = {3, 6, 5, 8}}},
                   .call = [&](const std::vector<Tensor>& in, std::vector<Tensor>& out,
                               WriteMode) { backend().conv2d_forward(in[0], in[1], in[2], params, true, out[0]); },
                   .reference = [&](const reference::Arrays& in) -> reference::Arrays {
                     return {reference::conv2d_forward(in[0], in[1], in[2], params, true)};
                   },
                   .dtypes = {DType::f32}});
    expect_parity({.name = "linear_backward_data",
                   .inputs = {random_input({7, 9}), random_input({9, 12}), random_input({7, 12})},
                   .outputs = {{.shape = {7, 12}}},
                   .call = [&](const std::vector<Tensor>& in, std::vector<Tensor>& out,
                               WriteMode mode) { backend().linear_backward_data(in[0], in[1], in[2], out[0], mode); },
                   .reference = [&](const reference::Arrays& in) -> reference::Arrays {
                     return {reference::linear_backward_data(in[0], in[1], in[2])};
                   },
                   .write_modes = true,
                   .dtypes = {DType::f32}});
  }
}

TEST_CASE("choices and sources have names, and a choice is found by its name") {
  for (const char* name : {"auto", "vendor", "own"})
    CHECK(std::string(name_of(kernel_choice_from(name).value())) == name);
  CHECK_FALSE(kernel_choice_from("Own").has_value());
  CHECK(std::string(name_of(KernelSource::vendor)) == "vendor");
  {
    const KernelChoiceGuard guard(KernelChoice::own);
    CHECK(kernel_choice() == KernelChoice::own);
  }
  CHECK(kernel_choice() == KernelChoice::automatic);
}
