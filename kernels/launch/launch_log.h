// What was launched: names for error messages, counts and bytes for benchmarks and tests. Every kernel launch and every
// call into a maths library that computes on the device is noted here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace heddle::cuda {

// A range of device memory that a kernel or library call touches. A launch uses no other memory, and a range that is
// written, not read and not kept is overwritten as a whole: tests on the simulated CUDA hold kernels to it. Ranges of a
// kernel begin where its pointer arguments point.
struct Access {
  const void* data = nullptr;
  std::size_t nbytes = 0;
  bool read = false;
  bool written = false;
  std::size_t untouched_nbytes = 0;  // of the range: where, only the kernel knows
  bool kept = false;                 // where it is not written it stays as it was
};
template <class T>
Access reads(const T* data, std::int64_t count) {
  return {data, static_cast<std::size_t>(count) * sizeof(T), true, false};
}
template <class T>
Access writes(T* data, std::int64_t count) {
  return {data, static_cast<std::size_t>(count) * sizeof(T), false, true};
}
// `touched` of the elements, which only the kernel knows.
template <class T>
Access reads_some(const T* data, std::int64_t count, std::int64_t touched) {
  return {data, static_cast<std::size_t>(count) * sizeof(T), true, false,
          static_cast<std::size_t>(count > touched ? count - touched : 0) * sizeof(T)};
}
template <class T>
Access writes_some(T* data, std::int64_t count, std::int64_t touched) {
  return {data,
          static_cast<std::size_t>(count) * sizeof(T),
          false,
          true,
          static_cast<std::size_t>(count > touched ? count - touched : 0) * sizeof(T),
          true};
}
// Read and written.
template <class T>
Access updates(T* data, std::int64_t count) {
  return {data, static_cast<std::size_t>(count) * sizeof(T), true, true};
}
template <class T>
Access updates_some(T* data, std::int64_t count, std::int64_t touched) {
  Access access = writes_some(data, count, touched);
  access.read = true;
  return access;
}
// Bytes of unknown type.
inline Access reads_bytes(const void* data, std::size_t nbytes) { return {data, nbytes, true, false}; }
inline Access writes_bytes(void* data, std::size_t nbytes) { return {data, nbytes, false, true}; }
// A library's workspace: how much of it is used is not known.
inline Access workspace_bytes(void* data, std::size_t nbytes) { return {data, nbytes, false, true, nbytes}; }

// Of the calling thread, since it started.
struct LaunchTotals {
  std::uint64_t launches = 0;
  std::uint64_t read_nbytes = 0;
  std::uint64_t written_nbytes = 0;
};
LaunchTotals launch_totals() noexcept;

// Notes a launch that is about to happen. name must live as long as the program (a literal). Accesses with a null
// pointer or no bytes are left out.
void note_launch(const char* name, std::span<const Access> accesses);

// Names of the launches of the calling thread since its last forget_launches(), oldest first, the last 16 of them.
std::string recent_launches();
// All queued work is known to be done.
void forget_launches() noexcept;

// Is told of each launch before it happens, on the launching thread; nullptr: nobody. For tests, which reach it by the
// plugin's function heddle_cuda_set_launch_observer.
using LaunchObserver = void (*)(const char* name, std::span<const Access> accesses);
void set_launch_observer(LaunchObserver observer) noexcept;

}  // namespace heddle::cuda
