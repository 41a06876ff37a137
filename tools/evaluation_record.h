// evaluation.json of a run: what its last evaluation of a saved epoch found, for `heddle report`. Written by the
// training; knows nothing of pages.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/evaluation.h"
#include "tools/json.h"
#include "tools/model_description.h"
#include "tools/pictures/mistakes.h"

namespace heddle::tools {

// {"epoch", "step", "samples", "loss", "accuracy", "classes": [name], "confusion": [[count]], "mistakes": [{"index",
// "label", "prediction", "loss", "png"}]}. "png", in base64, is missing without libpng.
Json evaluation_record(std::int64_t epoch, std::int64_t step, const Evaluation& test, const std::vector<Mistake>& worst,
                       const ModelDescription& description);

}  // namespace heddle::tools
