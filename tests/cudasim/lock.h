// What of the simulator's lock only its own core uses; class Lock itself is in internal.h.
#pragma once

#include "tests/cudasim/internal.h"

namespace cudasim {

// Gives the lock away while it lives, however often the calling thread holds it.
class Unlock {
 public:
  Unlock();
  ~Unlock();
  Unlock(const Unlock&) = delete;
  Unlock& operator=(const Unlock&) = delete;

 private:
  int depth_;
};

// While it lives, the calling thread counts as holding the lock, which another thread holds that waits for it.
class AdoptedLock {
 public:
  AdoptedLock();
  ~AdoptedLock();
  AdoptedLock(const AdoptedLock&) = delete;
  AdoptedLock& operator=(const AdoptedLock&) = delete;
};

// Wakes all threads in wait_for_notification().
void notify_all();
// Gives the lock away until notify_all() is called, at most so long. The lock must be held.
void wait_for_notification(int milliseconds);

}  // namespace cudasim
