// The simulated cuDNN's convolutions and products against loops.
#include "tests/cudasim/test/cudnn_test_support.h"

namespace {

using namespace cudnn_test;
using cudasim::ElementType;

// Sizes of a convolution and where things are in arrays with channels last.
struct Case {
  std::int64_t images = 2, channels = 3, height = 6, width = 5, out_channels = 4, kernel = 3, groups = 1;
  ConvolutionSpec spec;
  std::int64_t out(std::int64_t size) const {
    return (size + spec.pre_padding + spec.post_padding - spec.dilation * (kernel - 1) - 1) / spec.stride + 1;
  }
  Dims x() const { return {images, channels, height, width}; }
  Dims w() const { return {out_channels, channels / groups, kernel, kernel}; }
  Dims y() const { return {images, out_channels, out(height), out(width)}; }
};

std::int64_t numel(const Dims& dims) { return dims[0] * dims[1] * dims[2] * dims[3]; }

std::size_t at(const Dims& dims, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return static_cast<std::size_t>(((n * dims[2] + h) * dims[3] + w) * dims[1] + c);
}

// Calls visit(place in x, place in w, place in y) for every product of the convolution.
template <class Visitor>
void for_each_product(const Case& c, const Visitor& visit) {
  for (std::int64_t n = 0; n < c.images; ++n)
    for (std::int64_t o = 0; o < c.out_channels; ++o)
      for (std::int64_t oy = 0; oy < c.out(c.height); ++oy)
        for (std::int64_t ox = 0; ox < c.out(c.width); ++ox)
          for (std::int64_t i = 0; i < c.channels / c.groups; ++i)
            for (std::int64_t ky = 0; ky < c.kernel; ++ky)
              for (std::int64_t kx = 0; kx < c.kernel; ++kx) {
                const std::int64_t y = oy * c.spec.stride - c.spec.pre_padding + ky * c.spec.dilation;
                const std::int64_t x = ox * c.spec.stride - c.spec.pre_padding + kx * c.spec.dilation;
                if (y < 0 || y >= c.height || x < 0 || x >= c.width) continue;
                const bool flip = c.spec.mode == CUDNN_CONVOLUTION;
                const std::int64_t first = o / (c.out_channels / c.groups) * (c.channels / c.groups);
                visit(at(c.x(), n, first + i, y, x),
                      at(c.w(), o, i, flip ? c.kernel - 1 - ky : ky, flip ? c.kernel - 1 - kx : kx),
                      at(c.y(), n, o, oy, ox));
              }
}

std::vector<Case> cases() {
  return {{},
          {.spec = {.stride = 2, .pre_padding = 1, .post_padding = 1}},
          {.height = 7, .width = 7, .spec = {.pre_padding = 2, .post_padding = 1, .dilation = 2}},
          {.spec = {.pre_padding = 1, .post_padding = 1, .mode = CUDNN_CONVOLUTION, .alpha = 0.5, .beta = 2}},
          {.images = 3, .channels = 1, .height = 9, .width = 9, .out_channels = 6, .kernel = 5},
          {.channels = 6, .out_channels = 4, .groups = 2},
          {.channels = 3, .out_channels = 3, .groups = 3, .spec = {.stride = 2}},
          {.channels = 8, .height = 4, .width = 4, .out_channels = 1, .kernel = 1, .spec = {.stride = 2}}};
}

}  // namespace

TEST_CASE("cuDNN: the forward convolution") {
  for (const Case& c : cases()) {
    const Cudnn cudnn;
    const auto x = varied(numel(c.x()), 1), w = varied(numel(c.w()), 2);
    auto expected =
        c.spec.beta == 0 ? std::vector<double>(static_cast<std::size_t>(numel(c.y()))) : varied(numel(c.y()), 3);
    const NumberArray device_x(x), device_w(w), device_y(expected);
    // Without beta the result's old value must not matter.
    if (c.spec.beta == 0) device_y.fill(0xff);
    for (double& value : expected) value *= c.spec.beta;
    for_each_product(
        c, [&](std::size_t xi, std::size_t wi, std::size_t yi) { expected[yi] += c.spec.alpha * x[xi] * w[wi]; });
    cudnn.run(operations(conv_forward(c.spec, {1, c.x()}, {2, c.w()}, {3, c.y()})),
              {{1, device_x.data()}, {2, device_w.data()}, {3, device_y.data()}});
    CHECK(largest_error(device_y.download(), expected) < 1e-6);
  }
}

TEST_CASE("cuDNN: the data gradient of a convolution") {
  for (const Case& c : cases()) {
    const Cudnn cudnn;
    const auto dy = varied(numel(c.y()), 1), w = varied(numel(c.w()), 2), before = varied(numel(c.x()), 3);
    std::vector<double> expected = before;
    for (double& value : expected) value *= c.spec.beta;
    for_each_product(
        c, [&](std::size_t xi, std::size_t wi, std::size_t yi) { expected[xi] += c.spec.alpha * dy[yi] * w[wi]; });
    const NumberArray device_dy(dy), device_w(w), device_dx(before);
    if (c.spec.beta == 0) device_dx.fill(0xff);
    cudnn.run(operations(conv_backward_data(c.spec, {3, c.x()}, {2, c.w()}, {1, c.y()})),
              {{1, device_dy.data()}, {2, device_w.data()}, {3, device_dx.data()}});
    CHECK(largest_error(device_dx.download(), expected) < 1e-6);
  }
}

TEST_CASE("cuDNN: the filter gradient of a convolution") {
  for (const Case& c : cases()) {
    const Cudnn cudnn;
    const auto dy = varied(numel(c.y()), 1), x = varied(numel(c.x()), 2), before = varied(numel(c.w()), 3);
    std::vector<double> expected = before;
    for (double& value : expected) value *= c.spec.beta;
    for_each_product(
        c, [&](std::size_t xi, std::size_t wi, std::size_t yi) { expected[wi] += c.spec.alpha * dy[yi] * x[xi]; });
    const NumberArray device_dy(dy), device_x(x), device_dw(before);
    if (c.spec.beta == 0) device_dw.fill(0xff);
    cudnn.run(operations(conv_backward_filter(c.spec, {2, c.x()}, {3, c.w()}, {1, c.y()})),
              {{1, device_dy.data()}, {2, device_x.data()}, {3, device_dw.data()}});
    CHECK(largest_error(device_dw.download(), expected) < 1e-6);
  }
}

TEST_CASE("cuDNN: convolution, bias and ReLU in one call, float and bfloat16") {
  const bool single = GENERATE(true, false);
  const auto type = single ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
  const auto element = single ? ElementType::float32 : ElementType::bfloat16;
  const Case c{.spec = {.pre_padding = 1, .post_padding = 1}};
  const Dims bias_dims{1, c.out_channels, 1, 1};
  const Cudnn cudnn;
  const auto x = varied(numel(c.x()), 1), w = varied(numel(c.w()), 2), bias = varied(c.out_channels, 3);
  std::vector<double> expected(static_cast<std::size_t>(numel(c.y())));
  for_each_product(c, [&](std::size_t xi, std::size_t wi, std::size_t yi) { expected[yi] += x[xi] * w[wi]; });
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double sum = expected[i] + bias[i % static_cast<std::size_t>(c.out_channels)];
    expected[i] = cudasim::round_to(element, sum > 0 ? sum : 0);
  }
  const NumberArray device_x(x, element), device_w(w, element), device_bias(bias, element);
  const NumberArray device_y(numel(c.y()), element);
  const TensorSpec sum{10, c.y(), CUDNN_DATA_FLOAT, true}, shifted{11, c.y(), CUDNN_DATA_FLOAT, true};
  cudnn.run(operations(conv_forward(c.spec, {1, c.x(), type}, {2, c.w(), type}, sum),
                       pointwise(CUDNN_POINTWISE_ADD, sum, {3, bias_dims, type}, shifted),
                       pointwise(CUDNN_POINTWISE_RELU_FWD, shifted, {}, {4, c.y(), type})),
            {{1, device_x.data()}, {2, device_w.data()}, {3, device_bias.data()}, {4, device_y.data()}});
  CHECK(largest_error(device_y.download(), expected) < 1e-6);
}

TEST_CASE("cuDNN: the data gradient plus what another branch left") {
  const Case c;
  const Cudnn cudnn;
  const auto dy = varied(numel(c.y()), 1), w = varied(numel(c.w()), 2), other = varied(numel(c.x()), 3);
  std::vector<double> expected = other;
  for_each_product(c, [&](std::size_t xi, std::size_t wi, std::size_t yi) { expected[xi] += dy[yi] * w[wi]; });
  const NumberArray device_dy(dy), device_w(w), device_other(other), device_dx(numel(c.x()));
  const TensorSpec gradient{10, c.x(), CUDNN_DATA_FLOAT, true};
  cudnn.run(operations(conv_backward_data(c.spec, gradient, {2, c.w()}, {1, c.y()}),
                       pointwise(CUDNN_POINTWISE_ADD, gradient, {3, c.x()}, {4, c.x()})),
            {{1, device_dy.data()}, {2, device_w.data()}, {3, device_other.data()}, {4, device_dx.data()}});
  CHECK(largest_error(device_dx.download(), expected) < 1e-6);
}

TEST_CASE("cuDNN: the first engine of a float convolution uses TF32, the engine without notes does not") {
  const Cudnn cudnn;
  const Dims one{1, 1, 1, 1};
  const double value = 1 + 1.0 / 4096;
  const NumberArray x(std::vector<double>{value}), w(std::vector<double>{1}), y(1), workspace(1024);
  const Descriptor graph_descriptor = graph(operations(conv_forward({}, {1, one}, {2, one}, {3, one})));
  const auto found = configurations(graph_descriptor);
  REQUIRE(found.size() > 2);
  const std::map<std::int64_t, void*> tensors{{1, x.data()}, {2, w.data()}, {3, y.data()}};
  CHECK(numerical_notes(found.front()) == std::vector{CUDNN_NUMERICAL_NOTE_TENSOR_CORE});
  REQUIRE(cudnn.execute(plan_of(found.front()), tensors, workspace.data()) == CUDNN_STATUS_SUCCESS);
  CHECK(y.download()[0] == 1);
  const auto exact = configurations(graph_descriptor, CUDNN_HEUR_MODE_FALLBACK);
  CHECK(numerical_notes(exact.front()).empty());
  REQUIRE(cudnn.execute(plan_of(exact.front()), tensors, workspace.data()) == CUDNN_STATUS_SUCCESS);
  CHECK(y.download()[0] == value);
}

TEST_CASE("cuDNN: a batch of matrix products with a bias") {
  const Cudnn cudnn;
  const Dims a_dims{2, 3, 4}, b_dims{2, 4, 5}, c_dims{2, 3, 5}, bias_dims{1, 1, 5};
  const auto a = varied(24, 1), b = varied(40, 2), bias = varied(5, 3);
  const NumberArray device_a(a), device_b(b), device_bias(bias), device_c(30);
  const Descriptor function = Descriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR)
                                  .set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
                                  .finalize();
  const TensorSpec product{10, c_dims, CUDNN_DATA_FLOAT, true};
  Descriptor matmul = Descriptor(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
                          .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, function)
                          .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor({1, a_dims}))
                          .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor({2, b_dims}))
                          .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(product))
                          .finalize();
  cudnn.run(operations(std::move(matmul), pointwise(CUDNN_POINTWISE_ADD, product, {3, bias_dims}, {4, c_dims})),
            {{1, device_a.data()}, {2, device_b.data()}, {3, device_bias.data()}, {4, device_c.data()}});
  std::vector<double> expected;
  for (std::size_t q = 0; q < 2; ++q) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 5; ++j) {
        double sum = bias[j];
        for (std::size_t p = 0; p < 4; ++p) sum += a[(q * 3 + i) * 4 + p] * b[(q * 4 + p) * 5 + j];
        expected.push_back(sum);
      }
    }
  }
  CHECK(largest_error(device_c.download(), expected) < 1e-6);
}
