// The one way to start a kernel. Used by the .cu files of this folder and by whoever writes own kernels beside them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/launch/check.h"
#include "kernels/launch/launch_log.h"
#include "kernels/launch/profile.h"

namespace heddle::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_nbytes = 0;
};

// Blocks of `block` threads that cover `count` elements of `per_thread` each; at least one, at most `max_blocks`.
inline LaunchShape cover(std::int64_t count, int block = 256, int per_thread = 1,
                         std::int64_t max_blocks = std::int64_t{1} << 30) {
  const std::int64_t per_block = std::int64_t{block} * per_thread;
  std::int64_t blocks = (count + per_block - 1) / per_block;
  if (blocks < 1) blocks = 1;
  if (blocks > max_blocks) blocks = max_blocks;
  return {dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(block)), 0};
}

// Queues kernel(args...) on the stream. `accesses` names all device memory that the kernel touches. Does not wait.
// Throws: DeviceError when the launch is refused.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
            std::span<const Access> accesses, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "the kernel takes another number of arguments");
  const profile::Range range(name);
  note_launch(name, accesses);
  std::tuple<std::decay_t<Parameters>...> values{static_cast<std::decay_t<Parameters>>(arguments)...};
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        check(cudaLaunchKernel(kernel, shape.grid, shape.block, pointers, shape.shared_nbytes, stream), name);
      },
      values);
}
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
            std::initializer_list<Access> accesses, Arguments&&... arguments) {
  launch(name, kernel, shape, stream, std::span<const Access>(accesses.begin(), accesses.size()),
         std::forward<Arguments>(arguments)...);
}

}  // namespace heddle::cuda
