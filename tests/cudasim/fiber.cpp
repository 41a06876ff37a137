// Fibers; see the header. With the annotations that AddressSanitizer and ThreadSanitizer need to follow a switch.
#include "tests/cudasim/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#include "tests/cudasim/internal.h"
#ifdef CUDASIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef CUDASIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifndef CUDASIM_USES_UCONTEXT
// cudasim_switch(&from.stack_pointer, to.stack_pointer): saves what the ABI calls callee-saved.
asm(R"(
.text
.globl cudasim_switch
.hidden cudasim_switch
.type cudasim_switch,@function
cudasim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cudasim_switch, .-cudasim_switch
)");
extern "C" void cudasim_switch(void** from, void* to);
#endif

namespace cudasim {
namespace {

constexpr std::size_t kGuard = 4096;

}  // namespace

Context::Context(std::size_t stack_nbytes, void (*entry)()) : entry_(entry), stack_nbytes_(stack_nbytes) {
  mapping_ =
      mmap(nullptr, stack_nbytes + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) die("no memory for the stack of a simulated thread");
  mprotect(mapping_, kGuard, PROT_NONE);
  stack_ = static_cast<char*>(mapping_) + kGuard;
#ifdef CUDASIM_TSAN
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
  prepare();
}

Context::~Context() {
  if (mapping_ == nullptr) return;
#ifdef CUDASIM_ASAN
  __asan_unpoison_memory_region(stack_, stack_nbytes_);
#endif
#ifdef CUDASIM_TSAN
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  munmap(mapping_, stack_nbytes_ + kGuard);
}

void Context::restart() {
#ifdef CUDASIM_ASAN
  __asan_unpoison_memory_region(stack_, stack_nbytes_);
  fake_stack_ = nullptr;
#endif
  prepare();
}

void Context::prepare() {
#ifdef CUDASIM_USES_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = stack_nbytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, entry_, 0);
#else
  // From the top: a return address for entry, which is never used, the address that `ret` jumps to, six registers.
  // Entry then starts with the stack pointer at 8 modulo 16, as the ABI wants.
  auto* top = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(stack_) + stack_nbytes_);
  *--top = 0;
  *--top = reinterpret_cast<std::uintptr_t>(entry_);
  for (int i = 0; i < 6; ++i) *--top = 0;
  stack_pointer_ = top;
#endif
}

void Context::entered([[maybe_unused]] Context& starter) {
#ifdef CUDASIM_ASAN
  const void* stack = nullptr;
  std::size_t nbytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &nbytes);
  starter.stack_ = const_cast<void*>(stack);
  starter.stack_nbytes_ = nbytes;
#endif
}

void Context::switch_to(Context& from, Context& to) {
#ifdef CUDASIM_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_nbytes_);
#endif
#ifdef CUDASIM_TSAN
  if (from.tsan_fiber_ == nullptr) from.tsan_fiber_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.tsan_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef CUDASIM_USES_UCONTEXT
  swapcontext(&from.context_, &to.context_);
#else
  cudasim_switch(&from.stack_pointer_, to.stack_pointer_);
#endif
#ifdef CUDASIM_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace cudasim
