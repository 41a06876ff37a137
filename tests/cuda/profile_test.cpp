// What a profiler is told: a range for each own kernel, each call of a library, and each step.
#include <algorithm>

#include "engine/autograd/node.h"
#include "engine/backend/backend.h"
#include "engine/backend/kernel_choice.h"
#include "engine/step/step_graph.h"
#include "tests/cuda/nvtx_listener.h"
#include "tests/support/catch.h"

using namespace heddle;

TEST_CASE("a profiler sees own kernels, calls of cuBLASLt and cuDNN, and steps, each as a closed range") {
  const Device device = Device::cuda(0);
  if (!is_registered(device)) {
    WARN("no GPU: nothing checked");
    return;
  }
  Backend& backend = backend_for(device);
  const KernelChoiceGuard vendor(KernelChoice::vendor);
  const Tensor x = Tensor::full({2, 8, 8, 4}, 1, DType::f32, device),
               w = Tensor::full({8, 3, 3, 4}, 1, DType::f32, device);
  const Tensor a = Tensor::full({4, 8}, 1, DType::f32, device), b = Tensor::full({8, 6}, 1, DType::f32, device);
  Tensor y = Tensor::empty({2, 8, 8, 8}, DType::f32, device), product = Tensor::empty({4, 6}, DType::f32, device);
  Tensor negative = Tensor::empty_like(a);
  const auto work = [&] {
    backend.conv2d_forward(x, w, Tensor(), {.padding_h = 1, .padding_w = 1}, false, y);
    backend.matmul(a, b, {}, product, WriteMode::store);
    backend.unary(UnaryOp::neg, a, 0, 0, negative);
  };
  take_nvtx_ranges();
  step::StepGraph graph(device, {.enabled = false});
  graph.run({}, work);
  const std::vector<std::string> ranges = take_nvtx_ranges();
  std::string all;
  for (const std::string& range : ranges) all += range + "\n";
  INFO(all);
  REQUIRE(ranges.size() == 4);
  CHECK(ranges[0] == "step");
  // Of cuDNN's graph, which has no name of its own.
  CHECK(ranges[1].find("step/") == 0);
  CHECK(ranges[1].find("conv") != std::string::npos);
  CHECK(ranges[2] == "step/cublasLtMatmul");
  CHECK(ranges[3].find("step/") == 0);
  CHECK(open_nvtx_ranges() == 0);
  runtime_for(device).synchronize(current_stream(device));
}
