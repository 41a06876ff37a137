// What every op refuses, and that the message names both sides.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "engine/autograd/backward.h"
#include "engine/device/device_runtime.h"
#include "engine/ops/ops.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;

namespace {

struct Refusal {
  std::function<void()> call;
  std::vector<std::string> parts;  // of the message
};

void check_all(const std::vector<Refusal>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    INFO("row " << i);
    try {
      rows[i].call();
      FAIL_CHECK("nothing was thrown");
    } catch (const InvalidArgument& e) {
      for (const std::string& part : rows[i].parts) CHECK_THAT(e.what(), Catch::Contains(part));
    }
  }
}

Tensor f(const Shape& shape) { return Tensor::full(shape, 1.0); }
Tensor of(DType dtype, const Shape& shape = {2, 3}) { return Tensor::full(shape, 1.0, dtype); }

// Host memory that calls itself a GPU, so that operands can be on two devices.
class OtherDevice final : public DeviceRuntime {
 public:
  static Device id() { return Device::cuda(41); }
  Device device() const noexcept override { return id(); }
  std::string description() const override { return "test double"; }
  void* allocate(std::size_t nbytes) override { return std::aligned_alloc(256, (nbytes + 255) / 256 * 256); }
  void deallocate(void* data, std::size_t) noexcept override { std::free(data); }
  MemoryInfo memory_info() const override { return {1u << 30, 1u << 30}; }
  void copy_async(void* to, Device, const void* from, Device, std::size_t nbytes, Stream) override {
    if (nbytes != 0) std::memcpy(to, from, nbytes);
  }
  void fill_async(void* to, unsigned char value, std::size_t nbytes, Stream) override {
    if (nbytes != 0) std::memset(to, value, nbytes);
  }
  Stream create_stream() override { return {id(), nullptr}; }
  void destroy_stream(Stream) noexcept override {}
  Event record(Stream) override { return {}; }
  void wait(Stream, const Event&) override {}
  bool is_done(Stream) override { return true; }
  void synchronize(Stream) override {}
};

Tensor elsewhere(const Tensor& x) {
  if (!is_registered(OtherDevice::id())) register_device(std::make_unique<OtherDevice>());
  return x.to(OtherDevice::id());
}

}  // namespace

TEST_CASE("element-wise ops refuse shapes, dtypes and scalars that do not fit") {
  check_all({
      {[] {
         ops::add(f({2, 3}), f({2}));
       },
       {"add", "(2,3)", "(2)", "3 against 2"}},
      {[] {
         ops::sub(f({2, 3}), of(DType::f64));
       },
       {"sub", "f32", "f64", "(2,3)"}},
      {[] { ops::mul(f({4}), of(DType::i64, {4})); }, {"mul", "f32", "i64"}},
      {[] { ops::div(of(DType::i32), of(DType::i32)); }, {"div", "i32", "f32, f64 or bf16"}},
      {[] { ops::div(of(DType::i32), 2.0); }, {"div", "i32"}},
      {[] { ops::pow(of(DType::u8), of(DType::u8)); }, {"pow", "u8"}},
      {[] { ops::pow(of(DType::i64), 2.0); }, {"pow", "i64"}},
      {[] { ops::maximum(f({3}), f({4})); }, {"maximum", "(3)", "(4)"}},
      {[] { ops::minimum(f({3}), of(DType::bf16, {3})); }, {"minimum", "f32", "bf16"}},
      {[] { ops::eq(f({3}), of(DType::i64, {3})); }, {"eq", "f32", "i64"}},
      {[] { ops::lt(of(DType::i64), 0.5); }, {"lt", "i64", "0.5"}},
      {[] { ops::add(of(DType::u8), 300.0); }, {"add", "u8", "300"}},
      {[] { ops::mul(of(DType::i32), 1e12); }, {"mul", "i32", "1e+12"}},
      {[] { ops::eq(of(DType::i64), HUGE_VAL); }, {"eq", "i64", "inf"}},
      {[] { ops::where(f({3}), f({3}), f({3})); }, {"where", "condition", "f32", "u8"}},
      {[] { ops::where(of(DType::u8, {3}), f({3}), of(DType::f64, {3})); }, {"where", "f32", "f64"}},
      {[] { ops::where(of(DType::u8, {4}), f({3}), f({3})); }, {"where", "(4)", "(3)"}},
      {[] { ops::exp(of(DType::i32)); }, {"exp", "i32"}},
      {[] { ops::relu(of(DType::u8)); }, {"relu", "u8"}},
      {[] { ops::neg(of(DType::i64)); }, {"neg", "i64"}},
      {[] { ops::clamp(f({3}), 2, 1); }, {"clamp", "low is 2", "high is 1"}},
      {[] { ops::clamp(f({3}), std::nan(""), 1); }, {"clamp", "nan"}},
      {[] { ops::add(Variable(), f({3})); }, {"undefined"}},
      {[] { ops::add(f({3}), Tensor()); }, {"add", "b is undefined"}},
  });
}

TEST_CASE("reductions, products and rearrangements refuse shapes and dimensions that do not fit") {
  check_all({
      {[] { ops::sum(of(DType::i64)); }, {"sum", "i64"}},
      {[] {
         ops::sum(f({2, 3}), {2});
       },
       {"sum", "dimension 2", "(2,3)"}},
      {[] {
         ops::mean(f({2, 3}), {1, -1});
       },
       {"mean", "(2,3)", "twice"}},
      {[] {
         ops::mean(f({0, 3}));
       },
       {"mean", "no elements", "(0,3)"}},
      {[] {
         ops::max(f({2, 0}), 1);
       },
       {"max", "(2,0)"}},
      {[] { ops::max(f({2}), -2); }, {"max", "dimension -2", "(2)"}},
      {[] { ops::argmax(f({2}), 3); }, {"argmax", "dimension 3", "(2)"}},
      {[] {
         ops::matmul(f({2, 3}), f({2, 3}));
       },
       {"matmul", "(2,3)", "3 columns", "2 rows"}},
      {[] {
         ops::matmul(f({2, 3}), f({4, 3}), {.transpose_a = true, .transpose_b = true});
       },
       {"2 columns", "(transposed)", "(4,3)"}},
      {[] {
         ops::matmul(f({2, 2, 3}), f({4, 3, 2}));
       },
       {"matmul", "leading", "(2,2,3)", "(4,3,2)"}},
      {[] {
         ops::matmul(f({2, 3, 2}), f({3, 2}), {.transpose_a = true});
       },
       {"matmul", "(2,3,2)", "(3,2)"}},
      {[] {
         ops::matmul(f({3}), f({3, 2}));
       },
       {"matmul", "(3)", "(3,2)"}},
      {[] {
         ops::matmul(f({2, 3}), of(DType::bf16, {3, 2}));
       },
       {"matmul", "f32", "bf16"}},
      {[] {
         ops::reshape(f({2, 3}), {4, 2});
       },
       {"reshape", "(2,3)", "(4,2)"}},
      {[] {
         ops::reshape(f({2, 3}), {4, -1});
       },
       {"reshape", "(2,3)", "4"}},
      {[] {
         ops::reshape(f({2, 3}), {-1, -1});
       },
       {"reshape", "two"}},
      {[] {
         ops::flatten(f({2, 3}), 1, 0);
       },
       {"flatten", "(2,3)"}},
      {[] {
         ops::permute(f({2, 3}), {0});
       },
       {"permute", "(2,3)", "2", "1"}},
      {[] {
         ops::permute(f({2, 3}), {1, 1});
       },
       {"permute", "(2,3)", "twice"}},
      {[] {
         ops::transpose(f({2, 3}), 0, 2);
       },
       {"transpose", "dimension 2", "(2,3)"}},
      {[] { ops::concat({}); }, {"concat", "0 were given"}},
      {[] {
         const Tensor wide = f({0, std::numeric_limits<std::int64_t>::max() / 2 + 1});
         ops::concat({wide, wide}, 1);
       },
       {"concat", "input 1", "64 bits"}},
      {[] { ops::permute(Tensor(), {}); }, {"permute", "undefined"}},
      {[] {
         ops::concat({f({2, 3}), f({2, 4})});
       },
       {"concat", "(2,3)", "(2,4)", "input 1"}},
      {[] {
         ops::concat({f({2, 3}), of(DType::f64)});
       },
       {"concat", "f32", "f64"}},
      {[] {
         ops::narrow(f({2, 3}), 1, 2, 2);
       },
       {"narrow", "[2, 2+2)", "(2,3)"}},
      {[] {
         ops::narrow(f({2, 3}), 0, -1, 1);
       },
       {"narrow", "(2,3)"}},
      {[] {
         ops::index_select(f({2, 3}), labels({0, 2}));
       },
       {"index_select", "2 at position 1", "0 to 1"}},
      {[] {
         ops::index_select(f({2, 3}), labels({-1}));
       },
       {"index_select", "-1"}},
      {[] {
         ops::index_select(f({2, 3}), of(DType::i32, {2}));
       },
       {"index_select", "i32", "i64"}},
      {[] {
         ops::index_select(f({2, 3}), of(DType::i64));
       },
       {"index_select", "(2,3)", "needs 1"}},
      {[] {
         ops::gather(f({2, 3}), 1, of(DType::i64, {3, 3}));
       },
       {"gather", "(2,3)", "(3,3)"}},
      {[] {
         ops::gather(f({2, 3}), 1, Tensor::full({2, 1}, 3, DType::i64));
       },
       {"gather", "3", "0 to 2"}},
      {[] {
         ops::one_hot(labels({0, 4}), 4);
       },
       {"one_hot", "4", "0 to 3"}},
      {[] { ops::one_hot(labels({0}), 2, DType::u8); }, {"one_hot", "u8"}},
      {[] { ops::rand({2}, {.dtype = DType::i64}); }, {"rand", "i64"}},
      {[] { ops::softmax(of(DType::i64)); }, {"softmax", "i64"}},
      {[] {
         ops::log_softmax(f({2, 3}), 2);
       },
       {"log_softmax", "dimension 2", "(2,3)"}},
      {[] { ops::dropout(f({2}), 1.0, {}); }, {"dropout", "p is 1", "(2)"}},
      {[] { ops::dropout(f({2}), -0.1, {}); }, {"dropout", "-0.1"}},
  });
}

TEST_CASE("layers refuse shapes, dtypes and parameters that do not fit") {
  const Tensor x = f({8, 28, 28, 3});
  check_all({
      {[&] {
         ops::conv2d(x, f({6, 5, 5, 1}));
       },
       {"conv2d: x has 3 channels, w expects 1", "x (8,28,28,3)"}},
      {[&] {
         ops::conv2d_relu(x, f({6, 5, 5, 3}), f({5}));
       },
       {"conv2d_relu", "6 outputs", "(5)"}},
      {[&] {
         ops::conv2d(x, f({6, 5, 5, 3}), of(DType::f64, {6}));
       },
       {"conv2d", "f32", "f64", "bias"}},
      {[&] {
         ops::conv2d(x, of(DType::bf16, {6, 5, 5, 3}));
       },
       {"conv2d", "f32", "bf16"}},
      {[&] {
         ops::conv2d(f({28, 28, 3}), f({6, 5, 5, 3}));
       },
       {"conv2d", "x has 3 dimensions", "(28,28,3)"}},
      {[&] {
         ops::conv2d(x, f({6, 75}));
       },
       {"conv2d", "w has 2 dimensions"}},
      {[&] {
         ops::conv2d(x, f({6, 5, 5, 3}), {}, {.stride_h = 0});
       },
       {"conv2d", "stride is (0,1)"}},
      {[&] {
         ops::conv2d(x, f({6, 5, 5, 3}), {}, {.padding_w = -1});
       },
       {"conv2d", "padding is (0,-1)"}},
      {[&] {
         ops::conv2d(x, f({6, 5, 5, 3}), {}, {.dilation_h = 0});
       },
       {"conv2d", "dilation is (0,1)"}},
      {[&] {
         ops::conv2d(x, f({6, 5, 5, 3}), {}, {.groups = 0});
       },
       {"conv2d", "groups is 0"}},
      {[&] {
         ops::conv2d(x, f({6, 5, 5, 3}), {}, {.padding_h = std::int64_t{1} << 62});
       },
       {"conv2d", "too large"}},
      {[&] {
         ops::conv2d(x, f({4, 5, 5, 1}), {}, {.groups = 3});
       },
       {"conv2d", "4 outputs", "3 groups"}},
      {[&] {
         ops::linear(f({2, 3}), f({4, 5}));
       },
       {"linear", "3 features", "w expects 5", "(2,3)", "(4,5)"}},
      {[&] {
         ops::linear_relu(f({2, 5}), f({4, 5}), f({5}));
       },
       {"linear_relu", "4 outputs", "(5)"}},
      {[&] {
         ops::linear(f({2, 5}), f({5}));
       },
       {"linear", "w has 1 dimensions"}},
      {[&] {
         ops::linear(f({}), f({4, 5}));
       },
       {"linear", "no features", "5"}},
      {[&] {
         ops::max_pool2d(f({28, 28, 3}));
       },
       {"max_pool2d", "3 dimensions", "needs 4"}},
      {[&] {
         ops::relu_max_pool2d(of(DType::i64, {1, 4, 4, 1}));
       },
       {"relu_max_pool2d", "i64"}},
      {[&] { ops::max_pool2d(x, {.kernel_h = 0}); }, {"max_pool2d", "kernel is (0,2)"}},
      {[&] { ops::avg_pool2d(x, {.stride_w = 0}); }, {"avg_pool2d", "stride is (2,0)"}},
      {[&] { ops::avg_pool2d(x, {.padding_h = -1}); }, {"avg_pool2d", "padding (-1,0)"}},
      {[&] { ops::max_pool2d(x, {.kernel_h = 29, .ceil_mode = true}); }, {"max_pool2d", "29", "28"}},
      {[&] {
         ops::max_pool2d(x, {.kernel_h = 1 << 20, .kernel_w = 1 << 20, .padding_h = 1 << 19, .padding_w = 1 << 19});
       },
       {"max_pool2d", "the window of 1048576x1048576", "2147483647 positions"}},
      {[&] { ops::adaptive_avg_pool2d(x, std::int64_t{1} << 32, 3); }, {"adaptive_avg_pool2d", "too large"}},
      {[&] { ops::adaptive_avg_pool2d(x, 0, 3); }, {"adaptive_avg_pool2d", "(0,3)", "(8,28,28,3)"}},
      {[&] {
         ops::adaptive_max_pool2d(f({1, 0, 4, 2}), 2, 2);
       },
       {"adaptive_max_pool2d", "(1,0,4,2)", "(2,2)"}},
      {[&] {
         ops::cross_entropy(f({4, 10}), labels({0, 1}));
       },
       {"cross_entropy", "(4,10)", "(2)"}},
      {[&] {
         ops::cross_entropy(f({2, 10}), labels({0, 10}));
       },
       {"labels", "10 at position 1", "0 to 9", "-100"}},
      {[&] {
         ops::cross_entropy(f({2, 10}), of(DType::i32, {2}));
       },
       {"cross_entropy", "labels", "i32", "i64"}},
      {[&] {
         ops::cross_entropy(of(DType::i64), labels({0, 1}));
       },
       {"cross_entropy", "logits", "i64"}},
      {[&] {
         ops::cross_entropy(f({2, 3}), labels({0, 1}), {.label_smoothing = 1.0});
       },
       {"label_smoothing is 1"}},
      {[&] {
         ops::cross_entropy(f({2, 3}), labels({0, 1}), {.class_weight = f({2})});
       },
       {"3 classes", "(2)"}},
      {[&] {
         ops::cross_entropy(f({2, 3}), labels({0, 1}), {.stats = f({2})});
       },
       {"stats", "(2)", "(8)"}},
      {[&] {
         ops::mse_loss(f({2, 3}), f({3}));
       },
       {"mse_loss", "(2,3)", "(3)"}},
      {[&] { ops::mse_loss(f({2}), of(DType::f64, {2})); }, {"mse_loss", "f32", "f64"}},
  });
}

TEST_CASE("operands on two devices are refused with both devices") {
  const std::vector<std::string> both{"cpu", "cuda:41"};
  const Tensor image = f({1, 4, 4, 1}), kernel = f({1, 3, 3, 1});
  check_all({
      {[] { ops::add(f({2}), elsewhere(f({2}))); }, both},
      {[] { ops::where(of(DType::u8, {2}), elsewhere(f({2})), elsewhere(f({2}))); }, both},
      {[] {
         ops::matmul(f({2, 2}), elsewhere(f({2, 2})));
       },
       both},
      {[] {
         ops::concat({f({2}), elsewhere(f({2}))});
       },
       both},
      {[] {
         ops::index_select(f({2, 2}), elsewhere(labels({0})));
       },
       both},
      {[] {
         ops::gather(f({2, 2}), 0, elsewhere(of(DType::i64, {1, 2})));
       },
       both},
      {[&] { ops::conv2d(image, elsewhere(kernel)); }, both},
      {[&] { ops::conv2d(image, kernel, elsewhere(f({1}))); }, both},
      {[] {
         ops::linear(f({2, 2}), elsewhere(f({2, 2})));
       },
       both},
      {[] {
         ops::cross_entropy(f({2, 2}), elsewhere(labels({0, 1})));
       },
       both},
      {[] { ops::mse_loss(f({2}), elsewhere(f({2}))); }, both},
      {[] { ops::relu(elsewhere(f({2}))); }, {"no backend for cuda:41"}},
  });
}

TEST_CASE("a gradient follows its value from one device to the other") {
  Variable x = leaf({2}, {1, 2});
  const Variable away = ops::to(x, elsewhere(f({1})).device());
  CHECK(away.device() == OtherDevice::id());
  backward(away, {}, {.gradient = elsewhere(values({2}, {5, 6}))});
  CHECK(x.grad().device() == Device::cpu());
  CHECK(list(x.grad()) == std::vector<double>{5, 6});
}

TEST_CASE("an op with nothing to do returns its operand itself") {
  const Variable x = leaf({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(ops::sum(x, std::vector<int>{}) == x);
  CHECK(ops::mean(x, std::vector<int>{}, true) == x);
  CHECK(ops::dropout(x, 0.0, {}) == x);
  CHECK(ops::to(x, DType::f32) == x);
  CHECK(ops::to(x, Device::cpu()) == x);
  CHECK(ops::sum(Tensor::empty({2, 0}), {1}).shape() == Shape{2});
  CHECK(list(ops::sum(Tensor::empty({2, 0}), {1})) == std::vector<double>{0, 0});
}

TEST_CASE("results without a gradient: one_hot, argmax, rand") {
  CHECK(list(ops::one_hot(labels({2, 0}), 3)) == std::vector<double>{0, 0, 1, 1, 0, 0});
  CHECK(ops::one_hot(labels({2, 0}).reshape({2, 1}), 3, DType::f64).shape() == Shape{2, 1, 3});
  const Tensor x = values({2, 3}, {1, 5, 5, 9, 2, 3});
  CHECK(list(ops::argmax(x, 1)) == std::vector<double>{1, 0});
  CHECK(ops::argmax(x, 0, true).shape() == Shape{1, 3});
  CHECK(list(ops::max(x, 1).indices) == std::vector<double>{1, 0});
  const RandomStream random{.seed = 3};
  CHECK(list(ops::rand({5}, {.random = random})) == list(ops::rand({5}, {.random = random})));
  CHECK(list(ops::rand({5}, {.random = random})) != list(ops::rand({5}, {.random = {.seed = 4}})));
  for (const double v : list(ops::rand({1000}, {.random = random}))) CHECK((v >= 0 && v < 1));
  double sum = 0, squares = 0;
  for (const double v : list(ops::randn({4000}, {.random = random, .dtype = DType::f64}))) {
    sum += v;
    squares += v * v;
  }
  CHECK(std::abs(sum / 4000) < 0.08);           // five standard errors
  CHECK(std::abs(squares / 4000 - 1) < 0.115);  // five standard errors
}
