#include "engine/core/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>

namespace heddle {
namespace {

// How long a helper looks for the next job, and the caller for the end of one, before it sleeps: longer than the serial
// work between two loops of a training step, shorter than what a neighbour on the same processor would miss.
constexpr std::chrono::microseconds kSpin{50};

void pause_briefly() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True as soon as condition() is; false if it was not for kSpin.
template <class Condition>
bool spin_until(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

// The state of a job in one word: number of the job, parts, next part that nobody has begun. Part 0 is the caller's, so
// that the same processor meets the same data in loop after loop.
constexpr std::uint64_t new_claim(std::uint32_t job, int parts) {
  return (std::uint64_t{job} << 32) | (static_cast<std::uint64_t>(parts) << 16) | 1;
}
constexpr int parts_of(std::uint64_t claim) { return static_cast<int>((claim >> 16) & 0xffff); }
constexpr int next_of(std::uint64_t claim) { return static_cast<int>(claim & 0xffff); }

}  // namespace

struct ThreadPool::Shared {
  alignas(64) std::atomic<std::uint64_t> claim{0};
  alignas(64) std::atomic<std::uint32_t> job{0};       // number of the latest job; helpers sleep on it
  alignas(64) std::atomic<std::uint32_t> finished{0};  // parts of the latest job that helpers have done
  std::atomic<bool> stop{false};
  // Of the latest job. Stable while it has parts that are not finished: whoever has claimed one may read them.
  PartFunction function = nullptr;
  void* context = nullptr;

  // The next part that nobody has begun, or -1.
  int claim_part() {
    std::uint64_t now = claim.load(std::memory_order_acquire);
    while (next_of(now) < parts_of(now)) {
      if (claim.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        return next_of(now);
      }
    }
    return -1;
  }

  void help() {
    std::uint32_t seen = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      int done = 0;
      for (int part; (part = claim_part()) >= 0; ++done) {
        function(context, part);
        finished.fetch_add(1, std::memory_order_release);
        finished.notify_one();
      }
      if (done == 0 && job.load(std::memory_order_acquire) == seen) {
        if (!spin_until([&] { return job.load(std::memory_order_acquire) != seen; })) job.wait(seen);
      }
      seen = job.load(std::memory_order_acquire);
    }
  }
};

ThreadPool::~ThreadPool() {
  if (shared_ == nullptr) return;
  shared_->stop.store(true, std::memory_order_relaxed);
  shared_->job.fetch_add(1, std::memory_order_release);
  shared_->job.notify_all();
}

ThreadPool& ThreadPool::local() {
  thread_local ThreadPool instance;
  return instance;
}

void ThreadPool::start_helpers(int wanted) {
  // Signals are for the host program's threads.
  sigset_t all, previous;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &previous);
  try {
    for (; helpers_ < wanted; ++helpers_) std::thread([shared = shared_] { shared->help(); }).detach();
  } catch (const std::system_error&) {
    // No more threads to be had: the calling thread does their parts.
  }
  ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

void ThreadPool::run(int parts, PartFunction function, void* context) {
  if (shared_ == nullptr) shared_ = std::make_shared<Shared>();
  Shared& shared = *shared_;
  if (helpers_ < parts - 1) start_helpers(parts - 1);
  shared.function = function;
  shared.context = context;
  shared.finished.store(0, std::memory_order_relaxed);
  const std::uint32_t job = shared.job.load(std::memory_order_relaxed) + 1;
  shared.claim.store(new_claim(job, parts), std::memory_order_release);
  shared.job.store(job, std::memory_order_release);
  shared.job.notify_all();
  function(context, 0);
  auto elsewhere = static_cast<std::uint32_t>(parts - 1);
  for (int part; (part = shared.claim_part()) >= 0; --elsewhere) function(context, part);
  // What is left was begun by helpers.
  const auto all_finished = [&] { return shared.finished.load(std::memory_order_acquire) == elsewhere; };
  if (all_finished() || spin_until(all_finished)) return;
  for (std::uint32_t now; (now = shared.finished.load(std::memory_order_acquire)) != elsewhere;) {
    shared.finished.wait(now, std::memory_order_acquire);
  }
}

}  // namespace heddle
