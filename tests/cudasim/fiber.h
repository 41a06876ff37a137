// Fibers: the stacks on which the threads of a block run, switched by hand. Used by the block runner.
//
// On x86-64 a switch is a few instructions; elsewhere it is swapcontext(), which is some 50 times slower. A fiber stays
// on the host thread that made it, since the shared memory of a block is thread-local.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) || defined(CUDASIM_UCONTEXT)
#define CUDASIM_USES_UCONTEXT 1
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define CUDASIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDASIM_ASAN 1
#endif
#endif

namespace cudasim {

// A place to switch to: the stack of a fiber, or of the thread that started them.
class Context {
 public:
  // The calling thread's own stack.
  Context() = default;
  // A fiber with a new stack; entry must never return.
  Context(std::size_t stack_nbytes, void (*entry)());
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Leaves `from`, which is the running context, for `to`. Returns when somebody switches back.
  static void switch_to(Context& from, Context& to);
  // The first thing that a fiber's entry does; `starter` is the context that switched to it.
  static void entered(Context& starter);
  // Forgets what ran on the fiber's stack, so that its entry starts anew at the next switch. Not for the running
  // context.
  void restart();

 private:
  void prepare();

#ifdef CUDASIM_USES_UCONTEXT
  ucontext_t context_ = {};
#else
  void* stack_pointer_ = nullptr;
#endif
  void (*entry_)() = nullptr;
  void* mapping_ = nullptr;
  void* stack_ = nullptr;
  std::size_t stack_nbytes_ = 0;
#ifdef CUDASIM_ASAN
  void* fake_stack_ = nullptr;
#endif
#ifdef CUDASIM_TSAN
  void* tsan_fiber_ = nullptr;
#endif
};

}  // namespace cudasim
