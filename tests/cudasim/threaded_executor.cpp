// Bodies of operations run in a thread for each stream, one operation at a time: the thread that waits hands the
// operation over and stands still until it is done. For builds with ThreadSanitizer, which must not take the handing
// over for an order that the program made: it goes through a raw futex.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "tests/cudasim/executor.h"
#include "tests/cudasim/lock.h"

namespace cudasim {
namespace {

class StreamThread {
 public:
  StreamThread() {
    std::thread([this] { serve(); }).detach();
  }

  // False while it runs a host function, during which others have the lock.
  bool idle() const { return turn_.load() == kIdle; }
  void run(const std::function<void()>& work) {
    work_ = &work;
    turn_.store(kWork);
    wake();
    while (turn_.load() != kIdle) sleep_while(kWork);
  }

 private:
  static constexpr int kIdle = 0;
  static constexpr int kWork = 1;

  [[noreturn]] void serve() {
    for (;;) {
      while (turn_.load() != kWork) sleep_while(kIdle);
      {
        const AdoptedLock lock;
        (*work_)();
      }
      turn_.store(kIdle);
      wake();
    }
  }
  void sleep_while(int value) {
    syscall(SYS_futex, reinterpret_cast<int*>(&turn_), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
  }
  void wake() { syscall(SYS_futex, reinterpret_cast<int*>(&turn_), FUTEX_WAKE_PRIVATE, 2, nullptr, nullptr, 0); }

  std::atomic<int> turn_{kIdle};
  const std::function<void()>* work_ = nullptr;
};

// Threads live as long as the process.
StreamThread& thread_of(int device, std::int64_t stream_number) {
  static auto* threads = new std::map<std::pair<int, std::int64_t>, StreamThread>;
  return (*threads)[{device, stream_number}];
}

}  // namespace

void run_for_stream(int device, std::int64_t stream_number, const std::function<void()>& work) {
  StreamThread& thread = thread_of(device, stream_number);
  while (!thread.idle()) wait_for_notification(10);
  thread.run(work);
}

void prepare_stream(int device, std::int64_t stream_number) { thread_of(device, stream_number); }

}  // namespace cudasim
