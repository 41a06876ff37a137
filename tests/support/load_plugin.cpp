// Makes the GPUs of this build known before the first test: those of the simulated CUDA always, real ones where there
// is a driver. Tests find them with is_registered(); without a GPU they run on the CPU alone.
#include <cstdio>
#include <cstdlib>

#include "engine/device/cuda_plugin.h"

namespace {

const bool loaded = [] {
  if (!HEDDLE_SIMULATED_CUDA && !heddle::has_cuda_driver()) return false;
  std::string problem;
  if (heddle::load_cuda_plugin(&problem)) return true;
  std::fprintf(stderr, "no GPU for the tests: %s\n", problem.c_str());
  // A simulated one is always there; a driver may be there without a GPU.
  if (HEDDLE_SIMULATED_CUDA) std::exit(1);
  return false;
}();

}  // namespace
