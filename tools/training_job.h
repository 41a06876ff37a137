// One rank's part of a training run: model, trainer, checkpoint to continue from, epochs, and on rank 0 the run folder
// and what a person reads.
#pragma once

#include <string>

#include "engine/comm/communicator.h"
#include "engine/data/dataset.h"
#include "tools/console.h"
#include "tools/interrupt.h"
#include "tools/model_description.h"
#include "tools/runtime.h"
#include "tools/stop_agreement.h"
#include "tools/train_options.h"

namespace heddle::tools {

// What the ranks of this process share, and the device of one with its data. Borrowed parts; all outlive the job.
struct TrainingJob {
  TrainOptions& options;  // rank 0 takes the resumed run out of it
  bool resumes;           // there was one
  const Runtime& runtime;
  Device device;
  const ModelDescription& description;
  const Json& data;  // for run.json: files and checksums
  const data::ResidentDataset& train;
  const data::ResidentDataset& test;
  const InterruptWatch& interrupt;
  StopAgreement& stop;
  Console& out;
  Console& err;

  // The same for a rank on another device, whose data these are.
  TrainingJob on(Device other, const data::ResidentDataset& its_train, const data::ResidentDataset& its_test) const {
    return {.options = options,
            .resumes = resumes,
            .runtime = runtime,
            .device = other,
            .description = description,
            .data = data,
            .train = its_train,
            .test = its_test,
            .interrupt = interrupt,
            .stop = stop,
            .out = out,
            .err = err};
  }
};

// Trains. communicator: null for a training with one rank; else all ranks call this, and rank 0 reports. Returns the
// exit code. Throws: UsageError, IoError, NonFiniteLoss, CommError.
int run_training_job(const TrainingJob& job, comm::Communicator* communicator);

}  // namespace heddle::tools
