// The checkpoints of one run: the newest ones to continue from, and the one that did best on the test images.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "tools/model_description.h"
#include "tools/trainer.h"

namespace heddle::tools {

class CheckpointStore {
 public:
  // Makes the folder and removes leftovers of processes that died. Throws: IoError.
  CheckpointStore(const std::string& folder, const Settings& settings, ModelDescription description);

  // Returns the path. An older file is replaced only by a whole new one. Throws: IoError.
  std::string save(Trainer& trainer, bool is_best);
  // Fills model, optimiser, state and sums from a file. Throws: IoError; UsageError if it was trained with other
  // settings than `settings` in what a run keeps.
  static void load(Trainer& trainer, const std::string& path, const Settings& settings);
  // Path of the newest whole checkpoint, empty if there is none. Newer ones that cannot be used are added to `broken`,
  // with the reason. Throws: IoError if none can be read.
  std::string find_newest(std::vector<std::string>& broken) const;
  // Path of the newest whole checkpoint; empty if there is none.
  std::string newest() const;
  const ModelDescription& description() const noexcept { return description_; }

 private:
  checkpoint::CheckpointFolder folder_;
  Settings settings_;
  ModelDescription description_;
};

}  // namespace heddle::tools
