// Prints the default number of threads and where it comes from. Started by threads_test under other settings.
#include <cstdio>

#include "engine/core/parallel.h"

int main() {
  std::printf("%d %s\n", heddle::default_num_threads(), heddle::default_num_threads_source());
  return 0;
}
