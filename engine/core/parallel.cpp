// OpenMP is used here and nowhere else in the engine: oneDNN brings the same runtime, and one pool of threads that spin
// is enough for two cores. All OpenMP settings are passed per region, so the host program's own stay as they are.
#include "engine/core/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <vector>

#include "engine/core/cpu_count.h"
#include "engine/core/error.h"

namespace heddle {
namespace {

struct Default {
  int count = 1;
  const char* source = "affinity mask";

  Default() {
    if (const char* text = std::getenv("OMP_NUM_THREADS"); text != nullptr && std::atoi(text) > 0) {
      count = std::atoi(text);
      source = "OMP_NUM_THREADS";
      return;
    }
    count = affinity_cpu_count();
    if (const int quota = quota_cpu_count(); quota < count) {
      count = quota;
      source = "cgroup quota";
    }
  }
};

const Default& defaults() {
  static const Default instance;
  return instance;
}

std::atomic<int> program_threads{0};  // 0: the default
thread_local int thread_limit = 0;    // 0: the program's
thread_local bool inside_body = false;

}  // namespace

int default_num_threads() noexcept { return defaults().count; }
const char* default_num_threads_source() noexcept { return defaults().source; }

int num_threads() noexcept {
  if (thread_limit > 0) return thread_limit;
  const int n = program_threads.load(std::memory_order_relaxed);
  return n > 0 ? n : defaults().count;
}

void set_num_threads(int n) {
  HEDDLE_CHECK(n >= 1 && n <= 4096, "number of threads is ", n, "; it must be between 1 and 4096");
  program_threads.store(n, std::memory_order_relaxed);
}

ThreadLimit::ThreadLimit(int n) : previous_(thread_limit) {
  HEDDLE_CHECK(n >= 1, "thread limit is ", n, "; it must be at least 1");
  thread_limit = n;
}

ThreadLimit::~ThreadLimit() { thread_limit = previous_; }

int parallel_parts(std::int64_t n, std::int64_t grain) noexcept {
  if (n <= 0) return 0;
  if (inside_body) return 1;
  const std::int64_t most = std::max<std::int64_t>(1, n / std::max<std::int64_t>(1, grain));
  return static_cast<int>(std::min<std::int64_t>(num_threads(), most));
}

namespace detail {

void parallel_ranges(std::int64_t n, std::int64_t grain, RangeFunction function, void* context) {
  const int parts = parallel_parts(n, grain);
  if (parts == 0) return;
  if (parts == 1) return function(context, 0, n, 0);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(parts));
  const auto run = [&](int part) noexcept {
    const std::int64_t each = n / parts, rest = n % parts;
    const std::int64_t begin = part * each + std::min<std::int64_t>(part, rest);
    const bool outer = inside_body;
    inside_body = true;
    try {
      function(context, begin, begin + each + (part < rest ? 1 : 0), part);
    } catch (...) {
      errors[static_cast<std::size_t>(part)] = std::current_exception();
    }
    inside_body = outer;
  };
#pragma omp parallel num_threads(parts)
  {
    // The runtime may give fewer threads than asked for (nested regions, thread limits): the parts stay the same.
    for (int part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) run(part);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace detail

}  // namespace heddle
