// The metadata of a checkpoint as JSON text, and back with checks. Used by checkpoint.cpp and its tests only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "checkpoint.h"
#include "safetensors.h"

namespace heddle::checkpoint::detail {

struct OptimizerState {
  std::string name;
  std::int64_t step_count = 0;
  std::int64_t random_count = 0;
  double learning_rate = 0;
};

// Everything in a checkpoint that is not a tensor.
struct StateRecord {
  TrainingState training;
  std::optional<OptimizerState> optimizer;
  std::map<std::string, RandomStream> random_streams;  // by the module's path
};

SafetensorsMetadata to_metadata(const StateRecord& record);
// Throws: IoError with the path: not a checkpoint, a newer format, or a value that cannot be.
StateRecord from_metadata(const SafetensorsMetadata& metadata, const std::string& path);

}  // namespace heddle::checkpoint::detail
