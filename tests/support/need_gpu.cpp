// Makes a test program of GPUs alone end as skipped where there is none.
#include <cstdio>
#include <cstdlib>

#include "engine/device/cuda_plugin.h"

namespace {

const bool there = [] {
  std::string problem;
  if (heddle::load_cuda_plugin(&problem)) return true;
  std::printf("skipped: %s\n", problem.c_str());
  std::exit(77);
}();

}  // namespace
