// Runs the built program `heddle`, and makes small data sets for it.
#pragma once

#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"
#include "tools/json.h"

namespace heddle::test {

// Path of the program.
std::string heddle_path();
ProcessResult heddle(std::vector<std::string> arguments, ProcessOptions options = {});

// Writes four IDX files with computed, learnable images of 28x28 in ten classes.
void write_small_dataset(const std::string& folder, std::int64_t n_train = 600, std::int64_t n_test = 200);

// Arguments of a short training on such a folder: one thread, batches of 32, learning rate 0.05 unless `more` says
// otherwise.
std::vector<std::string> small_training(const std::string& data, const std::string& out,
                                        std::vector<std::string> more = {});

// Runs the program as two processes that are ranks 0 and 1 and meet in the folder. Their results in this order.
std::vector<ProcessResult> heddle_as_two_ranks(std::vector<std::string> arguments, const std::string& folder);
// The lines of metrics.jsonl without the two that depend on the clock.
std::vector<std::string> metrics_of(const std::string& run);
// CRC-32 of the weights at the end of a run.
std::string weights_of(const std::string& run);
tools::Json json_file(const std::string& path);
bool file_exists(const std::string& path);
bool contains(const std::string& text, const std::string& part);

}  // namespace heddle::test
