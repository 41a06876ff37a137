// Barriers, warp operations and dynamic shared memory for kernels that a host compiler compiled.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cudasim {

enum class BarrierKind { plain, count, all, any };
// Waits until every thread of the block that has not ended is here; threads at different lines are an error.
// Returns the number of threads whose predicate holds, or whether all or any do.
__attribute__((visibility("default"))) int block_barrier(BarrierKind kind, int predicate, int line);

enum class WarpOp {
  sync,
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  match_any,
  match_all,
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_min_signed,
  reduce_max_signed,
  reduce_and,
  reduce_or,
  reduce_xor
};
// Waits until all lanes of mask are at this operation, then gives the calling lane its result. Lanes that disagree on
// mask or line, a caller outside its mask, and a mask that names a lane that has ended are errors. Reading from a lane
// outside the mask gives all bits set.
__attribute__((visibility("default"))) std::uint64_t warp_operation(WarpOp op, unsigned mask, std::uint64_t value,
                                                                    int argument, int width, int line);

// The block's dynamic shared memory, 16-byte aligned, all bits set when the block starts. Past its end lies a guard.
__attribute__((visibility("default"))) void* dynamic_shared_memory();

template <class T>
T warp_exchange(WarpOp op, unsigned mask, T value, int argument, int width, int line) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "shuffles move up to 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_operation(op, mask, bits, argument, width, line);
  T result;
  std::memcpy(static_cast<void*>(&result), &bits, sizeof(T));
  return result;
}

}  // namespace cudasim

// Product code names a kernel's dynamic shared memory with this macro, which it defines itself for nvcc alone.
#define HEDDLE_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(::cudasim::dynamic_shared_memory())

inline void __syncthreads(int line = __builtin_LINE()) { cudasim::block_barrier(cudasim::BarrierKind::plain, 0, line); }
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return cudasim::block_barrier(cudasim::BarrierKind::count, predicate, line);
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  return cudasim::block_barrier(cudasim::BarrierKind::all, predicate, line);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return cudasim::block_barrier(cudasim::BarrierKind::any, predicate, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  cudasim::warp_operation(cudasim::WarpOp::sync, mask, 0, 0, 32, line);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source_lane, int width = 32, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::shuffle, mask, value, source_lane, width, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::shuffle_up, mask, value, static_cast<int>(delta), width, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::shuffle_down, mask, value, static_cast<int>(delta), width, line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::shuffle_xor, mask, value, lane_mask, width, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return static_cast<unsigned>(
      cudasim::warp_operation(cudasim::WarpOp::ballot, mask, predicate != 0 ? 1 : 0, 0, 32, line));
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, line) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, line) == mask ? 1 : 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return static_cast<unsigned>(cudasim::warp_operation(cudasim::WarpOp::match_any, mask, bits, 0, 32, line));
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all_equal, int line = __builtin_LINE()) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const auto lanes =
      static_cast<unsigned>(cudasim::warp_operation(cudasim::WarpOp::match_all, mask, bits, 0, 32, line));
  *all_equal = lanes != 0 ? 1 : 0;
  return lanes;
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::reduce_add, mask, value, 0, 32, line);
}
inline int __reduce_add_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::reduce_add, mask, value, 0, 32, line);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::reduce_min, mask, value, 0, 32, line);
}
inline int __reduce_min_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::reduce_min_signed, mask, value, 0, 32, line);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::reduce_max, mask, value, 0, 32, line);
}
inline int __reduce_max_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::reduce_max_signed, mask, value, 0, 32, line);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::reduce_and, mask, value, 0, 32, line);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::reduce_or, mask, value, 0, 32, line);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  return cudasim::warp_exchange(cudasim::WarpOp::reduce_xor, mask, value, 0, 32, line);
}
