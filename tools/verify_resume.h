// The proof that a training which stops and resumes gives the bits of one that does not: trains once in one go, and
// again and again in two parts, and compares what is left. Used by `heddle verify-resume`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datasets/image_dataset.h"
#include "engine/data/dataset.h"
#include "tools/console.h"
#include "tools/interrupt.h"
#include "tools/json.h"
#include "tools/model_description.h"
#include "tools/runtime.h"
#include "tools/settings.h"
#include "tools/training_job.h"

namespace heddle::tools {

// What the trainings have in common. Borrowed parts.
struct ResumeProof {
  Settings settings;  // of all of them
  const Runtime& runtime;
  const ModelDescription& description;
  const Json& data;
  const ResidentParts& train;
  const ResidentParts& test;
  const InterruptWatch& interrupt;
  Console& out;  // gets a line for each part of the proof
  Console& err;
};

// Stops in the middle of the first epoch, behind the first epoch and in the middle of the second one, as far as
// settings.epochs go, and says for each what was compared: all tensors and counters of the last checkpoint, and the
// metrics of every epoch. Its runs are in a folder of its own below $TMPDIR or /tmp, which it removes. Returns the exit
// code: done, failed if something differs, or that of an interrupt. Throws: as run_training_job.
int verify_resume(const ResumeProof& proof);

}  // namespace heddle::tools
