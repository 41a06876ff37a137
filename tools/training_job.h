// One rank's part of a training run: model, trainer, checkpoint to continue from, epochs, and on rank 0 the run folder
// and what a person reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

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

// What the ranks of this process share, and the device of one with its data. Borrowed parts; all outlive the job.
struct TrainingJob {
  TrainOptions& options;  // rank 0 takes the resumed run out of it, and says whether it is finished
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

// The images on each device of the ranks in this process, in the order of Runtime::devices.
using ResidentParts = std::vector<data::ResidentDataset>;
using RankGroup = std::vector<std::unique_ptr<comm::Communicator>>;

// Ends for the ranks that the settings ask for, as threads of this process; none for one rank. Throws: CommError.
RankGroup make_thread_ranks(const Settings& settings, const Runtime& runtime);
// Steps that one of them may queue before rank 0 does: for StopAgreement.
std::int64_t steps_ahead(const RankGroup& group);
// run_training_job on all of them, each with its device's images; they are done when it returns. job: of the first
// device.
int run_training_threads(const TrainingJob& job, RankGroup group, const ResidentParts& train,
                         const ResidentParts& test);

// Puts images on the devices, and frees the host copy once the devices have their own.
ResidentParts make_resident(datasets::ImageDataset& part, const std::vector<Device>& devices);

}  // namespace heddle::tools
