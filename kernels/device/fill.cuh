// Sets every element of an array.
#pragma once

// One thread: elements i, i + threads, ... Bytes an element: sizeof(T) written. Deterministic.
template <class T>
__global__ void fill_kernel(T* y, long long count, T value) {
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads) {
    y[i] = value;
  }
}
