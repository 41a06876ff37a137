// Sizes that kernels count in int. Used by the primitives of this folder.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/core/error.h"

namespace heddle::cuda {

// size as int. Throws: NotSupported naming op.
inline int int_size(const char* op, std::int64_t size) {
  if (size > std::numeric_limits<int>::max()) {
    throw NotSupported(join_text(op, ": ", size, " elements along one side are too many for a CUDA device"));
  }
  return static_cast<int>(size);
}

}  // namespace heddle::cuda
