// Atomic functions, cached loads and fences for kernels that a host compiler compiled.
#pragma once

#include <vector_types.h>

#include <type_traits>

namespace cudasim {

// Replaces *address by next(*address) in one step; returns what was there.
template <class T, class Next>
T atomic_update(T* address, Next next) {
  T old_value;
  __atomic_load(address, &old_value, __ATOMIC_RELAXED);
  T new_value = next(old_value);
  while (!__atomic_compare_exchange(address, &old_value, &new_value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    new_value = next(old_value);
  }
  return old_value;
}

// Stops deduction, so that atomicAdd(float*, 1) means a float, as with the overloads of nvcc.
template <class T>
using Same = std::type_identity_t<T>;

// The types for which the hardware has the operation.
template <class T>
constexpr bool kIsAtomicInteger = std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
                                  std::is_same_v<T, unsigned long long> || std::is_same_v<T, long long>;
template <class T>
constexpr bool kIsAtomicNumber =
    (kIsAtomicInteger<T> && !std::is_same_v<T, long long>) || std::is_same_v<T, float> || std::is_same_v<T, double>;

}  // namespace cudasim

template <class T>
T atomicAdd(T* address, cudasim::Same<T> value) {
  static_assert(cudasim::kIsAtomicNumber<T>, "atomicAdd takes int, unsigned, unsigned long long, float or double");
  if constexpr (std::is_integral_v<T>) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
  } else {
    return cudasim::atomic_update(address, [value](T old_value) { return old_value + value; });
  }
}
template <class T>
T atomicSub(T* address, cudasim::Same<T> value) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>, "atomicSub takes int or unsigned");
  return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicMax(T* address, cudasim::Same<T> value) {
  static_assert(cudasim::kIsAtomicInteger<T>, "atomicMax takes integers");
  return cudasim::atomic_update(address, [value](T old_value) { return old_value < value ? value : old_value; });
}
template <class T>
T atomicMin(T* address, cudasim::Same<T> value) {
  static_assert(cudasim::kIsAtomicInteger<T>, "atomicMin takes integers");
  return cudasim::atomic_update(address, [value](T old_value) { return value < old_value ? value : old_value; });
}
template <class T>
T atomicExch(T* address, cudasim::Same<T> value) {
  T old_value;
  __atomic_exchange(address, &value, &old_value, __ATOMIC_RELAXED);
  return old_value;
}
template <class T>
T atomicCAS(T* address, cudasim::Same<T> expected, cudasim::Same<T> value) {
  static_assert(std::is_integral_v<T>, "atomicCAS takes integers");
  __atomic_compare_exchange(address, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T>
T atomicAnd(T* address, cudasim::Same<T> value) {
  static_assert(cudasim::kIsAtomicInteger<T>, "atomicAnd takes integers");
  return __atomic_fetch_and(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicOr(T* address, cudasim::Same<T> value) {
  static_assert(cudasim::kIsAtomicInteger<T>, "atomicOr takes integers");
  return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicXor(T* address, cudasim::Same<T> value) {
  static_assert(cudasim::kIsAtomicInteger<T>, "atomicXor takes integers");
  return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return cudasim::atomic_update(address, [limit](unsigned value) { return value >= limit ? 0u : value + 1; });
}
inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return cudasim::atomic_update(address,
                                [limit](unsigned value) { return value == 0 || value > limit ? limit : value - 1; });
}

// Fences order nothing here that the order of the threads does not.
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Loads and stores with a hint for the cache.
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
T __ldca(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
T __ldlu(const T* address) {
  return *address;
}
template <class T>
T __ldcv(const T* address) {
  return *address;
}
template <class T>
void __stwb(T* address, cudasim::Same<T> value) {
  *address = value;
}
template <class T>
void __stcg(T* address, cudasim::Same<T> value) {
  *address = value;
}
template <class T>
void __stcs(T* address, cudasim::Same<T> value) {
  *address = value;
}
template <class T>
void __stwt(T* address, cudasim::Same<T> value) {
  *address = value;
}
