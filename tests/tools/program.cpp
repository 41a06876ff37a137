#include "tests/tools/program.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>

#include "datasets/synthetic.h"
#include "tests/support/gzip.h"

namespace heddle::test {

std::string heddle_path() { return HEDDLE_PROGRAM; }

ProcessResult heddle(std::vector<std::string> arguments, ProcessOptions options) {
  options.arguments = std::move(arguments);
  return run_process(heddle_path(), std::move(options));
}

std::vector<ProcessResult> heddle_as_two_ranks(std::vector<std::string> arguments, const std::string& folder) {
  arguments.insert(arguments.end(), {"--store", "file:" + folder + "/meet"});
  std::vector<std::unique_ptr<Process>> processes;
  for (const char* const rank : {"0", "1"}) {
    ProcessOptions options;
    options.arguments = arguments;
    options.environment = {{"RANK", rank}, {"WORLD_SIZE", "2"}};
    processes.push_back(std::make_unique<Process>(heddle_path(), options));
  }
  std::vector<ProcessResult> results;
  for (const auto& process : processes) results.push_back(process->wait());
  return results;
}

void write_small_dataset(const std::string& folder, std::int64_t n_train, std::int64_t n_test) {
  const datasets::ImageDatasetPair pair = datasets::make_synthetic({.n_train = n_train, .n_test = n_test});
  const auto write = [&](const std::string& name, const datasets::ImageDataset& part) {
    const auto n = static_cast<std::uint32_t>(part.count);
    put_file(folder + "/" + name + "-images-idx3-ubyte",
             idx_header({n, 28, 28}) + std::string(part.images.begin(), part.images.end()));
    put_file(folder + "/" + name + "-labels-idx1-ubyte",
             idx_header({n}) + std::string(part.labels.begin(), part.labels.end()));
  };
  write("train", pair.train);
  write("t10k", pair.test);
}

std::vector<std::string> small_training(const std::string& data, const std::string& out,
                                        std::vector<std::string> more) {
  std::vector<std::string> arguments = {"train", "--dataset", "idx", "--data-dir", data, "--out", out};
  for (const auto& [flag, value] : {std::pair{"--batch-size", "32"}, {"--lr", "0.05"}, {"--threads", "1"}}) {
    if (std::find(more.begin(), more.end(), flag) == more.end()) arguments.insert(arguments.end(), {flag, value});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> metrics_of(const std::string& run) {
  std::vector<std::string> lines;
  std::istringstream text(get_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    tools::Json json = tools::Json::parse(line);
    json.erase("seconds");
    json.erase("images_per_second");
    lines.push_back(json.dump());
  }
  return lines;
}

std::string weights_of(const std::string& run) {
  return json_file(run + "/run.json")["result"]["weights_crc32"].get<std::string>();
}

tools::Json json_file(const std::string& path) { return tools::Json::parse(get_file(path)); }

bool file_exists(const std::string& path) { return std::filesystem::exists(path); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace heddle::test
