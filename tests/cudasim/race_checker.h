// What the simulator tells ThreadSanitizer: which CUDA threads and streams there are and what orders them. Nothing in a
// build without it. The simulator itself is compiled without -fsanitize=thread; CUDASIM_TSAN says that the program is.
#pragma once

#include <cstddef>

#ifdef CUDASIM_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void __tsan_read_range(void* data, unsigned long nbytes);
void __tsan_write_range(void* data, unsigned long nbytes);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace cudasim::race_checker {

#ifdef CUDASIM_TSAN

// The calling thread runs simulator code: its accesses (through intercepted functions) are none of the program's.
inline void enter_simulator() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void leave_simulator() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
// The running operation reads or writes memory by simulator code.
inline void touch(void* data, std::size_t nbytes, bool write) {
  leave_simulator();
  (write ? __tsan_write_range : __tsan_read_range)(data, nbytes);
  enter_simulator();
}
// Everything before release(tag) happens before everything after a later acquire(tag).
inline void acquire(void* tag) { __tsan_acquire(tag); }
inline void release(void* tag) { __tsan_release(tag); }

#else

inline void enter_simulator() {}
inline void leave_simulator() {}
inline void touch(void*, std::size_t, bool) {}
inline void acquire(void*) {}
inline void release(void*) {}

#endif

}  // namespace cudasim::race_checker
