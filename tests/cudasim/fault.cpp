// Memory faults: one in a kernel ends the kernel with an error, one in host code that touches device memory ends the
// process with a report. Also die().
#include <execinfo.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cudasim/address_map.h"
#include "tests/cudasim/block.h"
#include "tests/cudasim/lock.h"
#include "tests/cudasim/memory.h"
#include "tests/cudasim/shim/indices.h"

namespace cudasim {
namespace {

struct sigaction g_previous = {};
// The last report; written before anything is ended.
std::string& last_report_text() {
  static auto* text = new std::string;
  return *text;
}

void write_text(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void write_backtrace() {
  void* frames[24];
  backtrace_symbols_fd(frames, backtrace(frames, 24), STDERR_FILENO);
}

// Continues the interrupted thread at leave_faulted_kernel(), on the stack of the fiber that faulted.
bool redirect(void* context) {
  auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  constexpr greg_t kRedZone = 128;
  machine.gregs[REG_RSP] = ((machine.gregs[REG_RSP] - kRedZone) & ~greg_t{15}) - 8;
  machine.gregs[REG_RIP] = reinterpret_cast<greg_t>(&leave_faulted_kernel);
  return true;
#elif defined(__aarch64__)
  machine.sp &= ~std::uintptr_t{15};
  machine.pc = reinterpret_cast<std::uintptr_t>(&leave_faulted_kernel);
  return true;
#else
  (void)machine;
  return false;
#endif
}

void handle_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  char what[256];
  if (const char* kernel = running_kernel()) {
    if (!DeclaredMap::describe(address, what, sizeof(what)) && !describe_address(address, what, sizeof(what))) {
      std::snprintf(what, sizeof(what), "address %p, which is no device memory", info->si_addr);
    }
    char text[512];
    std::snprintf(text, sizeof(text), "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): illegal access to %s", kernel,
                  blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, what);
    set_last_report(text);
    if (redirect(context)) return;
    abort();
  }
  if (describe_address(address, what, sizeof(what))) {
    write_text("cudasim: host code touched device memory: ");
    write_text(what);
    write_text("\n");
    write_backtrace();
    ::signal(SIGABRT, SIG_DFL);
    abort();
  }
  // Not the simulator's: back to whoever was there before, or the default, at the second time.
  if (g_previous.sa_handler == SIG_DFL || g_previous.sa_handler == SIG_IGN) {
    ::signal(signal, SIG_DFL);
  } else {
    sigaction(signal, &g_previous, nullptr);
    g_previous.sa_handler = SIG_DFL;
  }
}

}  // namespace

void install_fault_handler() {
  struct sigaction current = {};
  sigaction(SIGSEGV, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == &handle_fault) return;
  g_previous = current;
  struct sigaction ours = {};
  ours.sa_sigaction = &handle_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &ours, nullptr);
}

void set_last_report(const std::string& text) {
  last_report_text() = text;
  write_text("cudasim: ");
  write_text(text.c_str());
  write_text("\n");
}

CUDASIM_API std::string last_report() {
  Lock lock;
  return last_report_text();
}

CUDASIM_API void die(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  write_text("cudasim: ");
  write_text(text);
  write_text("\n");
  write_backtrace();
  ::signal(SIGABRT, SIG_DFL);
  abort();
}

}  // namespace cudasim
