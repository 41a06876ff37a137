// A stream of random numbers as kernels take it: RandomStream of engine/backend/op_params.h. No device code.
#pragma once

#include <cstdint>

namespace heddle::cuda {

struct PhiloxStream {
  std::uint64_t seed;
  std::uint64_t offset;
  const std::int64_t* counter;  // null: stream number 0
};

}  // namespace heddle::cuda
