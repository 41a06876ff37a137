// How the kernels of arrays are started: packs of 16 bytes where all pointers allow it. Used by the .cu files here.
#pragma once

#include <algorithm>

#include "kernels/launch/launch.h"

namespace heddle::cuda {

struct Walk {
  std::int64_t packs;  // whole packs that may be accessed at once; 0 if some pointer is not aligned
  LaunchShape shape;   // one thread a pack and one for each element behind them
};

template <class T>
bool is_aligned(const T* pointer, std::size_t nbytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % nbytes == 0;
}

// `count` elements in packs of n (0: none), in the arrays of the pointers; a null pointer is no array.
template <class... Ts>
Walk walk(std::int64_t count, int n, const Ts*... pointers) {
  if (n == 0) return {0, cover(count)};
  const bool aligned =
      (is_aligned(pointers, std::min<std::size_t>(16, sizeof(Ts) * static_cast<std::size_t>(n))) && ...);
  const std::int64_t packs = aligned ? count / n : 0;
  return {packs, cover(packs + (count - packs * n))};
}

}  // namespace heddle::cuda
