// Host threads: how many the engine uses, and loops over them.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace heddle {

// Threads that the calling thread's next parallel_for or oneDNN call uses. Default: OMP_NUM_THREADS if set, else the
// affinity mask's processors limited by the container's CPU quota (rounded up).
int num_threads() noexcept;
// What num_threads() is without set_num_threads, and why ("affinity mask", "cgroup quota", "OMP_NUM_THREADS").
int default_num_threads() noexcept;
const char* default_num_threads_source() noexcept;
// Sets it for all threads of the program that have no ThreadLimit. n >= 1. Throws: InvalidArgument.
void set_num_threads(int n);

// While it lives, the calling thread uses n threads. For rank threads that share one machine.
class ThreadLimit {
 public:
  explicit ThreadLimit(int n);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int previous_;
};

namespace detail {
using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end, int part);
void parallel_ranges(std::int64_t n, std::int64_t grain, RangeFunction function, void* context);
}  // namespace detail

// Parts that parallel_for(n, grain, ..) will cut [0,n) into: at most num_threads(), each of at least grain elements.
int parallel_parts(std::int64_t n, std::int64_t grain) noexcept;

// Calls body(begin, end) or body(begin, end, part) on consecutive ranges that cover [0,n), as many as threads, and
// returns when all are done. The cut depends on n, grain and num_threads() only. Inside a body it runs serially. An
// exception of a body is thrown again here (the lowest part's).
template <class Body>
void parallel_for(std::int64_t n, std::int64_t grain, Body&& body) {
  using Fn = std::remove_reference_t<Body>;
  detail::parallel_ranges(
      n, grain,
      [](void* context, std::int64_t begin, std::int64_t end, int part) {
        Fn& fn = *static_cast<Fn*>(context);
        if constexpr (std::is_invocable_v<Fn&, std::int64_t, std::int64_t, int>) {
          fn(begin, end, part);
        } else {
          fn(begin, end);
        }
      },
      const_cast<std::remove_const_t<Fn>*>(std::addressof(body)));
}

}  // namespace heddle
