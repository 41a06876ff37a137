// What happens when cuDNN and cuBLASLt refuse or fail to run what they offered, on the simulated CUDA, whose calls can
// be told to.
#include <cublasLt.h>
#include <cudnn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/kernel_choice.h"
#include "engine/backend/math_settings.h"
#include "engine/core/error.h"
#include "engine/step/step_graph.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

using namespace heddle;
using namespace heddle::testing;

namespace {

const Device kGpu = Device::cuda(0);

std::filesystem::path plan_folder() { return std::filesystem::path(std::getenv("XDG_CACHE_HOME")) / "heddle"; }
// What an earlier run of this program stored is no answer here.
const auto num_removed = std::filesystem::remove_all(plan_folder());

// The libraries compute, with settings of the test's own, and no failure outlives the test.
class Vendor {
 public:
  explicit Vendor(const MathSettings& settings = {}) : choice_(KernelChoice::vendor), previous_(math_settings()) {
    set_math_settings(settings);
    take_noted_kernel();
  }
  ~Vendor() {
    set_math_settings(previous_);
    cudasim::clear_failures();
  }
  Vendor(const Vendor&) = delete;
  Vendor& operator=(const Vendor&) = delete;

 private:
  KernelChoiceGuard choice_;
  MathSettings previous_;
};

// The next `times` calls of a function fail.
void fail(const char* function, int status, int times = 1) {
  for (int i = 0; i < times; ++i) cudasim::fail_nth_library_call(function, 1, status);
}

std::string taken() { return std::string(take_noted_kernel().value().name); }

// A convolution that no other test has a plan for, on ones: each result counts the window's elements.
class Convolution {
 public:
  Convolution() : x_(Tensor::full({next_batch_++, 6, 6, 16}, 1, DType::f32, kGpu)) {
    y_ = Tensor::full({x_.dim(0), 4, 4, 16}, -9, DType::f32, kGpu);
  }
  void forward() { backend_for(kGpu).conv2d_forward(x_, w_, Tensor(), {}, false, y_); }
  void add_weight_gradient() { backend_for(kGpu).conv2d_backward_weight(x_, y_, {}, w_, nullptr, WriteMode::add); }
  bool is_right() const { return all_are(y_, 144); }
  // dw = 1 + (batch * 16) * 1
  bool has_right_sum() const { return all_are(w_, 1 + static_cast<double>(x_.dim(0)) * 16); }
  void set_y(double value) { y_.copy_from(Tensor::full(y_.shape(), value)); }

 private:
  static bool all_are(const Tensor& tensor, double value) {
    return array_of(tensor).values == std::vector<double>(static_cast<std::size_t>(tensor.numel()), value);
  }
  static inline std::int64_t next_batch_ = 2;
  Tensor x_, w_ = Tensor::full({16, 3, 3, 16}, 1, DType::f32, kGpu), y_;
};

// The text of the file in which plans are kept.
std::string stored_plans() {
  const std::filesystem::path folder = plan_folder();
  std::string text;
  if (!std::filesystem::exists(folder)) return text;
  for (const auto& file : std::filesystem::directory_iterator(folder)) text += test::get_file(file.path().string());
  return text;
}

}  // namespace

TEST_CASE("a plan of cuDNN that fails when it is run makes room for the next") {
  const Vendor vendor;
  for (const int status : {CUDNN_STATUS_EXECUTION_FAILED, CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_INTERNAL_ERROR,
                           CUDNN_STATUS_BAD_PARAM}) {
    INFO("status " << status);
    Convolution convolution;
    fail("cudnnBackendExecute", status);
    convolution.forward();
    CHECK(taken() == "cudnn");
    CHECK(convolution.is_right());
    const std::string kept = stored_plans();
    cudasim::clear_failures();
    convolution.forward();
    CHECK(taken() == "cudnn");
    CHECK(stored_plans() == kept);
  }
}

TEST_CASE("where every plan of cuDNN fails, an own kernel computes, and no plan is stored") {
  const Vendor vendor;
  Convolution convolution;
  const std::string kept = stored_plans();
  fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED, 100);
  convolution.forward();
  CHECK(taken() == "tiles");
  CHECK(convolution.is_right());
  CHECK(stored_plans() == kept);
}

TEST_CASE("a plan that adds and fails has added nothing") {
  const Vendor vendor;
  for (const int times : {1, 2, 100}) {
    INFO(times << " failures");
    Convolution convolution;
    convolution.set_y(1);
    fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED, times);
    convolution.add_weight_gradient();
    CHECK(taken() == (times == 100 ? "tiles" : "cudnn"));
    CHECK(convolution.has_right_sum());
    cudasim::clear_failures();
  }
  // One that has run before fails on the gradient itself, which may have been changed.
  Convolution convolution;
  convolution.set_y(1);
  convolution.add_weight_gradient();
  fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
  CHECK_THROWS_AS(convolution.add_weight_gradient(), DeviceError);
}

TEST_CASE("a failure of the GPU itself is no matter of another plan") {
  const Vendor vendor;
  Convolution convolution;
  fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
  cudasim::fail_nth("cudaStreamQuery", 1, cudaErrorIllegalAddress);
  CHECK_THROWS_AS(convolution.forward(), DeviceError);
}

TEST_CASE("a plan that fails while a step is recorded ends the recording") {
  const Vendor vendor;
  Convolution convolution;
  step::StepGraph graph(kGpu);
  graph.run({}, [&] { convolution.forward(); });
  fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED);
  CHECK_THROWS_AS(graph.run({}, [&] { convolution.forward(); }), DeviceError);
  graph.run({}, [&] { convolution.forward(); });
  CHECK(convolution.is_right());
}

TEST_CASE("a plan whose settings cannot be asked for computes and is not stored") {
  const Vendor vendor;
  int not_stored = 0;
  for (int nth = 1; nth <= 40; ++nth) {
    Convolution convolution;
    const std::string before = stored_plans();
    cudasim::fail_nth_library_call("cudnnBackendGetAttribute", nth, CUDNN_STATUS_INTERNAL_ERROR);
    try {
      convolution.forward();
      CHECK(convolution.is_right());
      if (stored_plans() == before) ++not_stored;
    } catch (const DeviceError&) {
      // The question belonged to the search for a plan.
    }
    cudasim::clear_failures();
  }
  CHECK(not_stored > 0);
}

TEST_CASE("a recording takes the plans that were measured before it") {
  const Vendor vendor(MathSettings{.time_algorithms = true});
  Convolution convolution;
  step::StepGraph graph(kGpu);
  const std::string before = stored_plans();
  graph.run({}, [&] { convolution.forward(); });
  const std::string measured = stored_plans();
  CHECK(measured != before);
  graph.run({}, [&] { convolution.forward(); });
  CHECK(graph.recorded_size({}).has_value());
  CHECK(stored_plans() == measured);
  CHECK(convolution.is_right());
}

TEST_CASE("C22: deterministic plans repeat after fast ones in the same process") {
  cudasim::set_nondeterministic_first(true);
  const Tensor x = Tensor::full({3, 9, 9, 16}, 0.3, DType::f32, kGpu);
  const Tensor dy = Tensor::full({3, 7, 7, 16}, 0.7, DType::f32, kGpu);
  const auto gradient = [&] {
    Tensor dw = Tensor::full({16, 3, 3, 16}, 0, DType::f32, kGpu);
    backend_for(kGpu).conv2d_backward_weight(x, dy, {}, dw, nullptr, WriteMode::store);
    return array_of(dw).values;
  };
  for (const bool timed : {false, true}) {
    const Vendor vendor(MathSettings{.time_algorithms = timed});
    if (!timed) {
      CHECK(gradient() != gradient());
    }
    gradient();
    set_math_settings({.deterministic = true, .time_algorithms = timed});
    const std::vector<double> first = gradient();
    CHECK(gradient() == first);
    set_math_settings({.time_algorithms = timed});
    gradient();
    set_math_settings({.deterministic = true, .time_algorithms = timed});
    CHECK(gradient() == first);
  }
  cudasim::set_nondeterministic_first(false);
}

TEST_CASE("plans that fail are left out when plans are measured") {
  const Vendor vendor(MathSettings{.time_algorithms = true});
  for (const int times : {1, 100}) {
    INFO(times << " failures");
    Convolution convolution;
    fail("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED, times);
    convolution.forward();
    CHECK(taken() == (times == 100 ? "tiles" : "cudnn"));
    CHECK(convolution.is_right());
    cudasim::clear_failures();
  }
}

TEST_CASE("a product that one algorithm of cuBLASLt refuses runs on the next, or on the own kernel") {
  const Vendor vendor;
  std::int64_t rows = 20;
  for (const int status : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_INVALID_VALUE}) {
    for (const char* const function : {"cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic"}) {
      for (const int times : {1, 100}) {
        INFO(function << " fails with status " << status << " " << times << " times");
        const Tensor x = Tensor::full({++rows, 32}, 1, DType::f32, kGpu),
                     w = Tensor::full({24, 32}, 1, DType::f32, kGpu);
        Tensor y = Tensor::full({rows, 24}, -9, DType::f32, kGpu);
        fail(function, status, times);
        backend_for(kGpu).linear_forward(x, w, Tensor(), false, y);
        const bool another = times == 1 && std::string(function) == "cublasLtMatmul";
        CHECK(taken() == (another ? "cublaslt" : "tiles"));
        CHECK(array_of(y).values == std::vector<double>(static_cast<std::size_t>(rows) * 24, 32));
        cudasim::clear_failures();
      }
    }
  }
  Tensor y = Tensor::full({20, 24}, -9, DType::f32, kGpu);
  fail("cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED);
  CHECK_THROWS_AS(backend_for(kGpu).linear_forward(Tensor::full({20, 32}, 1, DType::f32, kGpu),
                                                   Tensor::full({24, 32}, 1, DType::f32, kGpu), Tensor(), false, y),
                  DeviceError);
}

TEST_CASE("a bias or its gradient that is not aligned goes to the own kernel") {
  const Vendor vendor;
  const Tensor x = Tensor::full({19, 32}, 1, DType::f32, kGpu), w = Tensor::full({24, 32}, 1, DType::f32, kGpu);
  Tensor y = Tensor::full({19, 24}, -9, DType::f32, kGpu), dw = Tensor::full({24, 32}, -9, DType::f32, kGpu);
  const Tensor biases = Tensor::full({32}, 2, DType::f32, kGpu);
  for (const std::int64_t offset : {0, 1, 2, 4}) {
    INFO("offset " << offset);
    const char* const expected = offset % 4 == 0 ? "cublaslt" : "tiles";
    backend_for(kGpu).linear_forward(x, w, biases.slice_of_flat(offset, {24}), false, y);
    CHECK(taken() == expected);
    CHECK(array_of(y).values == std::vector<double>(19 * 24, 34));
    Tensor gradients = Tensor::full({32}, -9, DType::f32, kGpu);
    Tensor db = gradients.slice_of_flat(offset, {24});
    const Tensor dy = Tensor::full({19, 24}, 1, DType::f32, kGpu);
    backend_for(kGpu).linear_backward_weight(x, dy, dw, &db, WriteMode::store);
    CHECK(taken() == expected);
    CHECK(array_of(db).values == std::vector<double>(24, 19));
  }
}
