// Makes the GPUs of this build known before the first test: those of the simulated CUDA always, real ones where there
// is a driver. Tests find them with is_registered(); without a GPU they run on the CPU alone, unless HEDDLE_TEST_GPU
// says what the tests are to prove ("real" or "simulated"): then a program without that GPU fails.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/device/cuda_plugin.h"
#include "engine/device/device_runtime.h"

namespace {

bool load(std::string* problem) {
  if (HEDDLE_SIMULATED_CUDA || heddle::has_cuda_driver()) return heddle::load_cuda_plugin(problem);
  *problem = "no NVIDIA driver";
  return false;
}

// What was wanted and is not there; "" if nothing is missing.
std::string missing_gpu(bool loaded, const std::string& problem) {
  const char* const variable = std::getenv("HEDDLE_TEST_GPU");
  const std::string wanted = variable == nullptr ? "" : variable;
  if (!loaded) return HEDDLE_SIMULATED_CUDA || !wanted.empty() ? "no GPU for the tests: " + problem : "";
  const bool simulated = heddle::runtime_for(heddle::Device::cuda(0)).is_simulated();
  const std::string there = simulated ? "simulated" : "real";
  if (wanted.empty() || wanted == there) return "";
  return "HEDDLE_TEST_GPU is '" + wanted + "', and the GPU of this build is " + there;
}

const bool loaded = [] {
  std::string problem;
  const bool has_gpu = load(&problem);
  const std::string missing = missing_gpu(has_gpu, problem);
  if (!missing.empty()) {
    std::fprintf(stderr, "%s\n", missing.c_str());
    std::exit(1);
  }
  return has_gpu;
}();

}  // namespace
