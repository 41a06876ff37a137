#include "engine/checkpoint/training_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/version.h"

namespace heddle::checkpoint::detail {
namespace {

using nlohmann::json;

constexpr const char* kStateKey = "heddle.state";
constexpr const char* kSettingsKey = "heddle.settings";
constexpr std::int64_t kFormat = 1;
// Limits that keep hostile text cheap, whatever parser a reader has: a real state has some hundred bytes and three
// levels, settings some thousand bytes.
constexpr std::size_t kMaxTextNbytes = std::size_t{1} << 18;
constexpr int kMaxDepth = 16;
constexpr int kMaxNames = 4096;

// True if the text is large, opens many brackets at once, or has objects with many names. What is inside strings is
// counted too, which is only stricter.
bool is_too_large(const std::string& text) {
  if (text.size() > kMaxTextNbytes) return true;
  int depth = 0, names = 0;
  for (const char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ':') ++names;
    if (depth > kMaxDepth || names > kMaxNames) return true;
  }
  return false;
}

class Reader {
 public:
  Reader(const json& object, const std::string& path) : object_(object), path_(path) {}

  std::int64_t count(const char* key) const {
    const json& value = get(key);
    if (!value.is_number_integer()) refuse(key, "is no whole number");
    if (value.is_number_unsigned() &&
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse(key, "is out of range");
    }
    const auto number = value.get<std::int64_t>();
    if (number < 0) refuse(key, "is negative");
    return number;
  }
  std::uint64_t unsigned_number(const char* key) const {
    const json& value = get(key);
    if (!value.is_number_unsigned()) refuse(key, "is no whole number >= 0");
    return value.get<std::uint64_t>();
  }
  double number(const char* key) const {
    const json& value = get(key);
    if (!value.is_number()) refuse(key, "is no number");
    const auto number = value.get<double>();
    if (!std::isfinite(number)) refuse(key, "is not finite");
    return number;
  }
  std::string text(const char* key) const {
    const json& value = get(key);
    if (!value.is_string()) refuse(key, "is no text");
    return value.get<std::string>();
  }
  // An object, or null where that may be.
  const json& object(const char* key, bool may_be_null) const {
    const json& value = get(key);
    if (!value.is_object() && !(may_be_null && value.is_null())) refuse(key, "is no object");
    return value;
  }
  const json& get(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(key, "is missing");
    return *found;
  }
  [[noreturn]] void refuse(const char* key, const char* why) const {
    throw IoError(path_, join_text("its training state is damaged: '", key, "' ", why));
  }

 private:
  const json& object_;
  const std::string& path_;
};

}  // namespace

SafetensorsMetadata to_metadata(const StateRecord& record) {
  const TrainingState& t = record.training;
  json state;
  state["format"] = kFormat;
  state["version"] = HEDDLE_VERSION_STRING;
  state["model"] = t.model;
  state["epoch"] = t.epoch;
  state["batch"] = t.batch;
  state["step"] = t.step;
  state["total_epochs"] = t.total_epochs;
  state["seed"] = t.seed;
  state["best_metric"] = nullptr;
  if (t.best_metric.has_value()) state["best_metric"] = *t.best_metric;
  state["best_epoch"] = t.best_epoch;
  state["optimizer"] = nullptr;
  if (record.optimizer.has_value()) {
    const OptimizerState& o = *record.optimizer;
    state["optimizer"] = {{"name", o.name},
                          {"step_count", o.step_count},
                          {"random_count", o.random_count},
                          {"learning_rate", o.learning_rate}};
  }
  state["random_streams"] = json::object();
  for (const auto& [path, stream] : record.random_streams) {
    state["random_streams"][path] = {{"seed", stream.seed}, {"offset", stream.offset}};
  }
  HEDDLE_CHECK(!is_too_large(t.settings), "save_checkpoint: settings of ", t.settings.size(),
               " bytes; a checkpoint takes JSON of at most ", kMaxTextNbytes, " bytes, ", kMaxNames, " names and ",
               kMaxDepth, " levels");
  // "format": "pt" tells readers of other programs that names and layouts are PyTorch's.
  return {{"format", "pt"}, {kStateKey, state.dump()}, {kSettingsKey, t.settings}};
}

StateRecord from_metadata(const SafetensorsMetadata& metadata, const std::string& path) {
  const auto state_text = metadata.find(kStateKey);
  const auto settings_text = metadata.find(kSettingsKey);
  if (state_text == metadata.end() || settings_text == metadata.end()) {
    throw IoError(path, "holds weights, but is no checkpoint of a training run");
  }
  if (is_too_large(state_text->second)) {
    throw IoError(path, "its training state is larger or deeper than any that is written");
  }
  if (is_too_large(settings_text->second)) {
    throw IoError(path, "its settings are larger or deeper than any that are written");
  }
  const json state = json::parse(state_text->second, nullptr, false);
  if (!state.is_object()) throw IoError(path, "its training state is damaged: no JSON object");
  const Reader reader(state, path);
  if (const std::int64_t format = reader.count("format"); format != kFormat) {
    throw IoError(path, join_text("is a checkpoint of format ", format, ", this version reads format ", kFormat));
  }
  StateRecord record;
  TrainingState& t = record.training;
  t.model = reader.text("model");
  t.epoch = reader.count("epoch");
  t.batch = reader.count("batch");
  t.step = reader.count("step");
  t.total_epochs = reader.count("total_epochs");
  t.seed = reader.unsigned_number("seed");
  if (!reader.get("best_metric").is_null()) t.best_metric = reader.number("best_metric");
  t.best_epoch = reader.count("best_epoch");
  t.settings = settings_text->second;
  if (const json& optimizer = reader.object("optimizer", true); optimizer.is_object()) {
    const Reader o(optimizer, path);
    // Files of earlier versions have one count for both.
    const char* const random_key = optimizer.contains("random_count") ? "random_count" : "step_count";
    record.optimizer =
        OptimizerState{o.text("name"), o.count("step_count"), o.count(random_key), o.number("learning_rate")};
    if (record.optimizer->learning_rate < 0) o.refuse("learning_rate", "is negative");
  }
  for (const auto& [name, stream] : reader.object("random_streams", false).items()) {
    if (!stream.is_object()) reader.refuse("random_streams", "holds what is no stream");
    const Reader s(stream, path);
    record.random_streams[name] = {.seed = s.unsigned_number("seed"), .offset = s.unsigned_number("offset")};
  }
  return record;
}

}  // namespace heddle::checkpoint::detail
