// The simulator's lock and its condition, on raw futexes: a race checker that watches the program under test must not
// see them, or every CUDA call would order the program's threads and hide its races.
#include "tests/cudasim/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <ctime>

#include "tests/cudasim/race_checker.h"

namespace cudasim {
namespace {

// 0 free, 1 held, 2 held and somebody waits.
std::atomic<int> g_state{0};
// Counts notifications; waiters sleep while it stays the same.
std::atomic<int> g_notifications{0};
// How often the calling thread holds the lock.
thread_local int t_depth = 0;

void futex_wait(std::atomic<int>& word, int expected, const timespec* timeout) {
  syscall(SYS_futex, reinterpret_cast<int*>(&word), FUTEX_WAIT_PRIVATE, expected, timeout, nullptr, 0);
}

void futex_wake(std::atomic<int>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<int*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void acquire() {
  int expected = 0;
  if (g_state.compare_exchange_strong(expected, 1)) return;
  while (g_state.exchange(2) != 0) futex_wait(g_state, 2, nullptr);
}

void release() {
  if (g_state.exchange(0) == 2) futex_wake(g_state, 1);
}

}  // namespace

Lock::Lock() {
  if (t_depth == 0) {
    acquire();
    race_checker::enter_simulator();
  }
  ++t_depth;
}

Lock::~Lock() {
  if (--t_depth == 0) {
    race_checker::leave_simulator();
    release();
  }
}

Unlock::Unlock() : depth_(t_depth) {
  t_depth = 0;
  race_checker::leave_simulator();
  release();
}

Unlock::~Unlock() {
  acquire();
  race_checker::enter_simulator();
  t_depth = depth_;
}

AdoptedLock::AdoptedLock() {
  t_depth = 1;
  race_checker::enter_simulator();
}

AdoptedLock::~AdoptedLock() {
  race_checker::leave_simulator();
  t_depth = 0;
}

void notify_all() {
  g_notifications.fetch_add(1);
  futex_wake(g_notifications, INT_MAX);
}

void wait_for_notification(int milliseconds) {
  const int seen = g_notifications.load();
  const timespec timeout = {milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
  Unlock unlock;
  futex_wait(g_notifications, seen, &timeout);
}

}  // namespace cudasim
