// What the plugin launches on the simulated CUDA, as it declares it. For tests of the bytes that a step moves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::testing {

// A kernel or library call, with the bytes that it declares to touch: not a library's workspace.
struct Launch {
  std::string name;
  std::int64_t read_nbytes = 0;
  std::int64_t written_nbytes = 0;
};

// Launches of all threads between start_launch_list() and the end of it. Not recorded ones that are replayed.
void start_launch_list();
std::vector<Launch> end_launch_list();

}  // namespace heddle::testing
