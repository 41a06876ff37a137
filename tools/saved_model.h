// A model as a checkpoint holds it, ready to be used: what eval and predict begin with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/nn/module.h"
#include "tools/model_description.h"

namespace heddle::tools {

struct SavedModel {
  std::string path;                  // of the file
  std::vector<std::string> skipped;  // newer files of the run that are broken, with the reason
  ModelDescription description;
  std::shared_ptr<nn::Module> module;  // on the device, in evaluation mode
};

// `checkpoint` is a file, the folder of a run (its newest checkpoint), or a folder of checkpoints. A file that was not
// written by Heddle holds weights only (with PyTorch's names): then `model` says what they belong to, with the image
// size and, if they are ten, the classes of Fashion-MNIST. Throws: IoError; UsageError; InvalidArgument if the weights
// do not fit the model.
SavedModel load_saved_model(const std::string& checkpoint, const std::string& model, Device device);

}  // namespace heddle::tools
