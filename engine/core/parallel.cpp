// OpenMP is only asked whether the host program is inside a parallel region: loops run on the engine's own helper
// threads (see thread_pool.h for why), and the host program's OpenMP settings stay as they are.
#include "engine/core/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "engine/core/cpu_count.h"
#include "engine/core/error.h"
#include "engine/core/thread_pool.h"

namespace heddle {
namespace {

struct Default {
  int count = 1;
  const char* source = "affinity mask";

  Default() {
    if (const char* text = std::getenv("OMP_NUM_THREADS"); text != nullptr && std::atoi(text) > 0) {
      count = std::min(std::atoi(text), ThreadPool::kMaxParts);
      source = "OMP_NUM_THREADS";
      return;
    }
    count = std::min(affinity_cpu_count(), ThreadPool::kMaxParts);
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

// One call of parallel_for.
struct Loop {
  std::int64_t n;
  int parts;
  detail::RangeFunction function;
  void* context;
  std::mutex mutex = {};  // guards the two below
  std::exception_ptr error = {};
  int error_part = 0;

  void run(int part) noexcept {
    const std::int64_t each = n / parts, rest = n % parts;
    const std::int64_t begin = part * each + std::min<std::int64_t>(part, rest);
    const bool outer = inside_body;
    inside_body = true;
    try {
      function(context, begin, begin + each + (part < rest ? 1 : 0), part);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error || part < error_part) {
        error = std::current_exception();
        error_part = part;
      }
    }
    inside_body = outer;
  }
};

}  // namespace

int default_num_threads() noexcept { return defaults().count; }
const char* default_num_threads_source() noexcept { return defaults().source; }

int num_threads() noexcept {
  if (thread_limit > 0) return thread_limit;
  const int n = program_threads.load(std::memory_order_relaxed);
  return n > 0 ? n : defaults().count;
}

void set_num_threads(int n) {
  HEDDLE_CHECK(n >= 1 && n <= ThreadPool::kMaxParts, "number of threads is ", n, "; it must be between 1 and ",
               ThreadPool::kMaxParts);
  program_threads.store(n, std::memory_order_relaxed);
}

ThreadLimit::ThreadLimit(int n) : previous_(thread_limit) {
  HEDDLE_CHECK(n >= 1 && n <= ThreadPool::kMaxParts, "thread limit is ", n, "; it must be between 1 and ",
               ThreadPool::kMaxParts);
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
  Loop loop{.n = n, .parts = parts, .function = function, .context = context};
  if (omp_in_parallel() != 0) {
    // The host program is using its processors already.
    for (int part = 0; part < parts; ++part) loop.run(part);
  } else {
    ThreadPool::local().run(
        parts, [](void* context_of_part, int part) { static_cast<Loop*>(context_of_part)->run(part); }, &loop);
  }
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace detail

}  // namespace heddle
