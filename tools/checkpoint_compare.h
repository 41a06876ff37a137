// Compares two checkpoints bit for bit, for the proof that a resumed training is an uninterrupted one.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::tools {

struct CheckpointComparison {
  std::int64_t tensors = 0;  // compared
  std::int64_t values = 0;   // in them
  // The first difference, in the order of the first file: a tensor that only one file has, of another type or shape, or
  // with another bit ("'0.weight' differs first at element 17 of 150: 0.25 and 0.125"); else of the training state
  // (counters, best epoch, random streams, settings). Empty if there is none.
  std::string difference;
};

// Throws: IoError if one cannot be read.
CheckpointComparison compare_checkpoints(const std::string& a, const std::string& b);

}  // namespace heddle::tools
