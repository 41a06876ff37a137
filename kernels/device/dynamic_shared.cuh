// The one macro of the kernels: dynamic shared memory of the running block as an array of T. CUDA C++ spells it as an
// external array, which a host compiler cannot give to each block of a simulated grid. A kernel that uses it has no
// __shared__ variables: they count against the same limit, and a launch that asks for all of it would be refused.
#pragma once

#if !defined(HEDDLE_DYNAMIC_SHARED)
#define HEDDLE_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char heddle_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(heddle_dynamic_shared)
#endif
