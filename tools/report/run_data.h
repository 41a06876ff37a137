// What a report knows of a run: its files, read with care, since people edit them and crashes cut them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/json.h"

namespace heddle::tools::report {

// A line of metrics.jsonl. What it lacks is NaN.
struct EpochLine {
  std::int64_t epoch = 0;
  double train_loss, train_accuracy, test_loss, test_accuracy, learning_rate, seconds, images_per_second;
};

struct MistakeEntry {
  std::int64_t index = 0, label = 0, prediction = 0;
  double loss = 0.0;
  std::string png;  // base64; empty: none was written
};

// evaluation.json.
struct EvaluationData {
  std::int64_t epoch = 0;
  std::vector<std::string> classes;
  std::vector<std::vector<std::int64_t>> confusion;  // a row and a column for each class
  std::vector<MistakeEntry> mistakes;
};

struct RunData {
  std::string path;
  std::string name;               // the folder's; for the page
  Json description;               // run.json, an object
  Json settings;                  // its settings, an object
  std::vector<EpochLine> epochs;  // in ascending order
  std::optional<EvaluationData> evaluation;
  std::vector<std::string> warnings;  // what could not be read, for the user

  const EpochLine* last() const { return epochs.empty() ? nullptr : &epochs.back(); }
  // The last epoch with a test accuracy; null: there is none.
  const EpochLine* last_tested() const;
  // The epoch with the highest test accuracy; null if there is none.
  const EpochLine* best() const;
  // A setting as text; "" if the run has none of that name.
  std::string setting(const std::string& key) const;
  double training_seconds() const;
};

// Throws: UsageError if there is no run in the folder, or none that can be read; IoError.
RunData read_run(const std::string& path);

// A value of a run's files for people: texts as they are, numbers short, everything else as JSON.
std::string value_text(const Json& value);

}  // namespace heddle::tools::report
