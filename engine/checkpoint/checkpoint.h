// A training run's state in one safetensors file: the model in PyTorch's names and layouts, the optimiser's tensors
// under "optimizer/" (moving averages of the weights, if it keeps them, in PyTorch's layouts too, under
// "optimizer/average/" and the parameters' names), and counters, seed and settings as metadata. Used by the trainer and
// by embedders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../nn/module.h"
#include "../optim/optimizer.h"

namespace heddle::checkpoint {

// What a run needs to go on, besides tensors. Counters say what is done, so a schedule or a loader continues from them.
struct TrainingState {
  std::string model;              // its name in the list of models
  std::int64_t epoch = 0;         // whole epochs done
  std::int64_t batch = 0;         // batches of the next epoch done
  std::int64_t step = 0;          // updates done
  std::int64_t total_epochs = 0;  // what the run was asked for
  std::uint64_t seed = 0;
  std::optional<double> best_metric;  // best test accuracy (or what the run calls best) so far; never NaN
  std::int64_t best_epoch = 0;        // the epoch (from 1) that had it
  std::string settings = "{}";        // all settings of the run as JSON text, kept as it is
};

// Writes model, state and, unless null, the optimiser. The file appears whole or not at all; an older one under the
// same path stays if anything fails. Throws: IoError with path and reason; InvalidArgument if best_metric is not
// finite.
void save_checkpoint(const std::string& path, nn::Module& model, optim::Optimizer* optimizer,
                     const TrainingState& state);

// Restores model, random streams of its layers and, unless null, the optimiser with its learning rate and step count,
// and returns the rest. Everything is read and checked first: on any error nothing is changed. The file is not trusted.
// Throws: IoError: damaged, no checkpoint, or it does not fit the model or the optimiser (both sides are named).
TrainingState load_checkpoint(const std::string& path, nn::Module& model, optim::Optimizer* optimizer = nullptr);

// The same for a model that is to be used, not trained on: with the moving averages of the weights where the checkpoint
// has them (Optimizer::average_weights), else with the weights. Buffers are those of the training. `averaged`, unless
// null, is told which. Throws: as load_checkpoint.
TrainingState load_for_use(const std::string& path, nn::Module& model, bool* averaged = nullptr);

// The state alone, from the header; for a caller that has to build the model first. Throws: IoError.
TrainingState read_training_state(const std::string& path);

// Reads the whole file and compares it with its checksum. Throws: IoError.
void verify_checkpoint(const std::string& path);

// The name of a run's best checkpoint in its folder.
inline constexpr const char* kBestCheckpoint = "best.safetensors";

// What find_checkpoint found.
struct FoundCheckpoint {
  std::string path;
  std::vector<std::string> skipped;  // newer files that could not be used, with the reason
};

// The newest whole checkpoint of a folder: by step number, `best` last. Files of other names, also those that an
// interrupted save left, are ignored. Empty if there is none. Throws: IoError if the folder cannot be read; or if there
// are checkpoints, but none is whole (with the newest one's reason).
std::optional<FoundCheckpoint> find_checkpoint(const std::string& folder);

// `path` itself if it is a file; of a folder, or the folder "checkpoints" in it, the newest (or, if wanted and there,
// the best). Throws: IoError if nothing is there.
enum class Prefer : std::uint8_t { newest, best };
FoundCheckpoint resolve_checkpoint(const std::string& path, Prefer prefer = Prefer::newest);

// The checkpoints of one run: the last few, and the best.
class CheckpointFolder {
 public:
  // Creates the folder if needed, and removes what interrupted saves of dead processes left there.
  // Throws: IoError if that is not possible; InvalidArgument unless keep_last >= 1.
  explicit CheckpointFolder(std::string folder, int keep_last = 3);

  // Writes "step-000000001234.safetensors" (before it "best.safetensors" if is_best), then deletes all but the newest
  // keep_last numbered ones. Those of later steps, which are there if the run was set back, get the ending
  // ".superseded": at most keep_last are kept, each until the run has reached its step again. Returns the path.
  // Throws: as save_checkpoint.
  std::string save(nn::Module& model, optim::Optimizer* optimizer, const TrainingState& state, bool is_best = false);
  const std::string& folder() const noexcept { return folder_; }
  std::string best_path() const;

 private:
  std::string folder_;
  int keep_last_;
};

}  // namespace heddle::checkpoint
