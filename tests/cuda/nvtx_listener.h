// What an NVTX listener that stands in for a profiler has heard. See nvtx_listener.cpp.
#pragma once

#include <string>
#include <vector>

// Names of the ranges that were opened since the last call, by any thread, in order; a range inside another has the
// outer ones' names in front: "step/cublasLtMatmul".
__attribute__((visibility("default"))) std::vector<std::string> take_nvtx_ranges();
// Ranges that are open in this thread.
__attribute__((visibility("default"))) int open_nvtx_ranges();
