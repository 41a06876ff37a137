// One rank's part of a training run: model, trainer, checkpoint to continue from, epochs, and on rank 0 the run folder
// and what a person reads.
#pragma once

#include <string>

#include "datasets/image_dataset.h"
#include "engine/comm/communicator.h"
#include "engine/data/dataset.h"
#include "tools/console.h"
#include "tools/interrupt.h"
#include "tools/model_description.h"
#include "tools/runtime.h"
#include "tools/stop_agreement.h"
#include "tools/train_options.h"

namespace heddle::tools {

// What the ranks of this process share. Borrowed parts; all outlive the job.
struct TrainingJob {
  TrainOptions& options;  // rank 0 takes the resumed run out of it
  bool resumes;           // there was one
  const Runtime& runtime;
  const ModelDescription& description;
  const Json& data;  // for run.json: files and checksums
  const data::ResidentDataset& train;
  const data::ResidentDataset& test;
  const InterruptWatch& interrupt;
  StopAgreement& stop;
  Console& out;
  Console& err;
};

// Trains. communicator: null for a training with one rank; else all ranks call this, and rank 0 reports. Returns the
// exit code. Throws: UsageError, IoError, NonFiniteLoss, CommError.
int run_training_job(const TrainingJob& job, comm::Communicator* communicator);

// The same with the ranks that the settings ask for, as threads of this process; all of them are done when it returns.
int run_training_threads(const TrainingJob& job);

// Puts images on the device, and frees the host copy once the device has its own.
data::ResidentDataset make_resident(datasets::ImageDataset& part, Device device);

}  // namespace heddle::tools
