// What an evaluation looks like: a sheet of misclassified images and a confusion matrix, as pictures for TensorBoard.
#pragma once

#include <vector>

#include "datasets/image_file.h"
#include "engine/data/metrics.h"
#include "tools/model_description.h"
#include "tools/pictures/mistakes.h"

namespace heddle::tools {

// The images side by side, under each the true class (green) and the predicted one (red). At least one mistake.
datasets::Image draw_mistakes(const std::vector<Mistake>& mistakes, const ModelDescription& description);

// Rows are true classes, columns predicted ones; a cell is darker the larger its share of the row. Counts are written
// into the cells where they fit.
datasets::Image draw_confusion(const data::ConfusionMatrix& confusion, const ModelDescription& description);

}  // namespace heddle::tools
