#include "tools/report/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "engine/core/file.h"
#include "tools/base64.h"
#include "tools/config_file.h"
#include "tools/usage_error.h"

namespace heddle::tools::report {
namespace {

constexpr std::uint64_t kMaxNbytes = std::uint64_t{256} << 20;
constexpr std::size_t kMaxClasses = 256;
constexpr std::int64_t kMaxEpoch = 1'000'000'000;
constexpr std::size_t kShownWarnings = 5;

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

double number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::vector<EpochLine> read_metrics(const std::string& path, std::vector<std::string>& warnings) {
  std::vector<EpochLine> epochs;
  const std::string text = read_file(path, kMaxNbytes);
  std::vector<std::size_t> broken;
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("epoch") || !json["epoch"].is_number_integer() ||
        json["epoch"].get<std::int64_t>() < 0 || json["epoch"].get<std::int64_t>() > kMaxEpoch) {
      broken.push_back(line_number);
      continue;
    }
    epochs.push_back({.epoch = json["epoch"].get<std::int64_t>(),
                      .train_loss = number(json, "train_loss"),
                      .train_accuracy = number(json, "train_accuracy"),
                      .test_loss = number(json, "test_loss"),
                      .test_accuracy = number(json, "test_accuracy"),
                      .learning_rate = number(json, "learning_rate"),
                      .seconds = number(json, "seconds"),
                      .images_per_second = number(json, "images_per_second")});
  }
  for (std::size_t i = 0; i < std::min(broken.size(), kShownWarnings); ++i) {
    warnings.push_back(fmt::format("{}: line {} is no epoch's metrics and is left out", path, broken[i]));
  }
  if (broken.size() > kShownWarnings) {
    warnings.push_back(fmt::format("{}: {} more lines are left out", path, broken.size() - kShownWarnings));
  }
  std::stable_sort(epochs.begin(), epochs.end(),
                   [](const EpochLine& a, const EpochLine& b) { return a.epoch < b.epoch; });
  return epochs;
}

// Throws: Json::exception, Error.
EvaluationData parse_evaluation(const Json& json) {
  EvaluationData data;
  data.epoch = json.at("epoch").get<std::int64_t>();
  data.classes = json.at("classes").get<std::vector<std::string>>();
  data.confusion = json.at("confusion").get<std::vector<std::vector<std::int64_t>>>();
  const std::size_t n = data.classes.size();
  HEDDLE_CHECK(n > 0 && n <= kMaxClasses && data.confusion.size() == n, "it has ", n, " classes and ",
               data.confusion.size(), " rows");
  for (const auto& row : data.confusion) {
    HEDDLE_CHECK(row.size() == n, "a row of the confusion matrix has ", row.size(), " of ", n, " counts");
    for (const std::int64_t count : row) HEDDLE_CHECK(count >= 0, "a count is ", count);
  }
  const auto known_class = [n](std::int64_t i) { return i >= 0 && i < static_cast<std::int64_t>(n); };
  for (const Json& entry : json.at("mistakes")) {
    MistakeEntry mistake{.index = entry.at("index").get<std::int64_t>(),
                         .label = entry.at("label").get<std::int64_t>(),
                         .prediction = entry.at("prediction").get<std::int64_t>(),
                         .loss = number(entry, "loss"),
                         .png = entry.value("png", "")};
    HEDDLE_CHECK(known_class(mistake.label) && known_class(mistake.prediction), "a mistake is of class ", mistake.label,
                 " or ", mistake.prediction, " of ", n);
    HEDDLE_CHECK(is_base64(mistake.png), "an image is not in base64");
    data.mistakes.push_back(std::move(mistake));
  }
  return data;
}

std::optional<EvaluationData> read_evaluation(const std::string& path, std::vector<std::string>& warnings) {
  if (!exists(path)) return std::nullopt;
  std::string reason;
  try {
    return parse_evaluation(Json::parse(read_file(path, kMaxNbytes)));
  } catch (const Json::exception& error) {
    reason = error.what();
  } catch (const Error& error) {
    reason = error.what();
  }
  warnings.push_back(fmt::format("{} is broken and is left out: {}", path, reason));
  return std::nullopt;
}

}  // namespace

const EpochLine* RunData::last_tested() const {
  const auto found = std::find_if(epochs.rbegin(), epochs.rend(),
                                  [](const EpochLine& line) { return !std::isnan(line.test_accuracy); });
  return found == epochs.rend() ? nullptr : &*found;
}

const EpochLine* RunData::best() const {
  const EpochLine* best = nullptr;
  for (const EpochLine& line : epochs) {
    if (std::isnan(line.test_accuracy)) continue;
    if (best == nullptr || line.test_accuracy > best->test_accuracy) best = &line;
  }
  return best;
}

std::string RunData::setting(const std::string& key) const {
  return settings.contains(key) ? value_text(settings[key]) : std::string();
}

double RunData::training_seconds() const {
  return std::accumulate(epochs.begin(), epochs.end(), 0.0, [](double sum, const EpochLine& line) {
    return std::isnan(line.seconds) ? sum : sum + line.seconds;
  });
}

RunData read_run(const std::string& path) {
  RunData run;
  run.path = path;
  if (!exists(path + "/run.json")) {
    throw UsageError(fmt::format("{}: no run is there ({}/run.json is missing)", path, path));
  }
  run.description = read_json_file(path + "/run.json");
  if (!run.description.is_object() || !run.description.contains("settings") ||
      !run.description["settings"].is_object()) {
    throw UsageError(fmt::format("{}/run.json was not written by heddle train: it has no settings", path));
  }
  run.settings = run.description["settings"];
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, ignored);
  run.name = whole.filename().empty() ? path : whole.filename().string();
  if (exists(path + "/metrics.jsonl")) {
    run.epochs = read_metrics(path + "/metrics.jsonl", run.warnings);
  } else {
    run.warnings.push_back(path + "/metrics.jsonl is missing, so there are no curves");
  }
  run.evaluation = read_evaluation(path + "/evaluation.json", run.warnings);
  return run;
}

std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace heddle::tools::report
