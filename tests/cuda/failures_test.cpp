// A training in which one call of CUDA fails, on the simulated CUDA: an exception that says what
// failed, nothing left behind, and the next training is as if nothing had happened.
#include <map>
#include <string>
#include <vector>

#include "engine/device/caching_allocator.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/catch.h"
#include "tests/support/device_training.h"
#include "tools/evaluation.h"

namespace heddle::test {
namespace {

const Device kGpu = Device::cuda(0);

// How many of each kind are alive. Memory that no tensor needs is given back first.
std::map<std::string, int> alive() {
  allocator_for(kGpu).release_cached();
  std::map<std::string, int> counts;
  for (const cudasim::Leak& leak : cudasim::leaks()) ++counts[leak.kind];
  return counts;
}

struct Outcome {
  std::string error;  // empty: none
  std::vector<float> weights;
};

// Three steps, of which one is called, one recorded and one replayed, and an evaluation.
Outcome train(std::int64_t batch_size) {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 3 * batch_size, .n_test = batch_size});
  tools::Settings settings;
  settings.batch_size = batch_size;
  settings.momentum = 0.9;
  settings.steps_per_launch = 1;
  Outcome outcome;
  try {
    Training training(settings, data, kGpu);
    training.train_epoch();
    tools::evaluate(*training.model, training.test, {.batch_size = batch_size});
    outcome.weights = training.weights();
  } catch (const DeviceError& error) {
    outcome.error = error.what();
  }
  return outcome;
}

// Plans are kept for each batch size: a size of its own for every training with a failure, so that plans are made in
// it. How much more is alive after the first training of a size is the same for all sizes.
class Failures {
 public:
  Failures() {
    train(next_);
    const auto before = alive();
    train(++next_);
    kept_ = difference(alive(), before);
  }

  // One training with the failure that `arm` asks for, then two that must be clean. Returns the error, or nothing.
  template <class Arm>
  std::string run(Arm&& arm) {
    const std::int64_t size = ++next_;
    const auto before = alive();
    cudasim::clear_failures();
    arm();
    const Outcome failed = train(size);
    cudasim::clear_failures();
    const Outcome first = train(size), second = train(size);
    CHECK(first.error.empty());
    CHECK(second.error.empty());
    CHECK(first.weights == second.weights);
    if (failed.error.empty()) CHECK(failed.weights == first.weights);
    CHECK(difference(alive(), before) == kept_);
    return failed.error;
  }

 private:
  static std::map<std::string, int> difference(std::map<std::string, int> after,
                                               const std::map<std::string, int>& before) {
    for (const auto& [kind, count] : before) after[kind] -= count;
    std::erase_if(after, [](const auto& entry) { return entry.second == 0; });
    return after;
  }

  std::int64_t next_ = 1;
  std::map<std::string, int> kept_;
};

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("memory that runs out at any allocation of a training is one clean error, and nothing is left behind") {
  Failures failures;
  for (const std::string function : {"cudaMalloc", "cudaHostAlloc"}) {
    int errors = 0;
    for (int nth = 1;; ++nth) {
      INFO(function << " number " << nth << " and all after it");
      const std::string error = failures.run([&] { cudasim::fail_from_nth(function, nth, cudaErrorMemoryAllocation); });
      if (error.empty()) break;
      INFO(error);
      CHECK(says(error, "out of"));
      CHECK(says(error, "memory"));
      ++errors;
    }
    CHECK(errors >= 1);
  }
  // Memory that is short for a moment: what is cached is given back, and the training does not notice.
  for (int nth = 1; nth <= 6; ++nth) {
    INFO("cudaMalloc number " << nth << " alone");
    CHECK(failures.run([&] { cudasim::fail_nth("cudaMalloc", nth, cudaErrorMemoryAllocation); }).empty());
  }
}

TEST_CASE("a call of CUDA that fails anywhere in a training is named with its code, and nothing is left behind") {
  Failures failures;
  const std::vector<std::pair<cudaError_t, std::string>> codes = {
      {cudaErrorLaunchFailure, "cudaErrorLaunchFailure"},
      {cudaErrorIllegalAddress, "cudaErrorIllegalAddress"},
      {cudaErrorUnknown, "cudaErrorUnknown"},
      {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources"},
      {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable"}};
  std::size_t next_code = 0;
  for (const std::string function :
       {"cudaMalloc", "cudaHostAlloc", "cudaHostGetDevicePointer", "cudaMemcpyAsync", "cudaMemsetAsync",
        "cudaLaunchKernel", "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch",
        "cudaStreamSynchronize", "cudaStreamQuery", "cudaEventRecord"}) {
    int errors = 0;
    for (const int nth : {1, 3, 21, 34}) {
      const auto& [code, name] = codes[next_code++ % codes.size()];
      INFO(function << " number " << nth << " with " << name);
      const std::string error = failures.run([&, code = code] { cudasim::fail_nth(function, nth, code); });
      if (error.empty()) break;
      INFO(error);
      // A launch is named by its kernel.
      if (function != "cudaLaunchKernel") CHECK(says(error, function));
      CHECK(says(error, "failed with " + name));
      ++errors;
    }
    INFO(function);
    CHECK(errors >= 1);
  }
}

}  // namespace heddle::test
