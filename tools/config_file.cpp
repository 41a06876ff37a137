#include "tools/config_file.h"

#include <fmt/format.h>

#include <set>

#include "engine/core/file.h"
#include "tools/presets.h"
#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

constexpr std::uint64_t kMaxConfigNbytes = std::uint64_t{1} << 20;
// What is deeper overflows the stack when it is copied or written.
constexpr int kMaxDepth = 64;

// Messages and paths end at a NUL.
void refuse_nul(const std::string& text, const std::string& what) {
  if (text.find('\0') != std::string::npos) throw UsageError(what + " holds a NUL character");
}

// Beside the settings a run's description has other things, and nothing that looks like a setting may be passed over.
void refuse_stray_settings(const Json& run, const std::string& path) {
  for (const auto& [key, value] : run.items()) {
    const Setting* const row = find_setting(key);
    // "model" describes the model there.
    if (row == nullptr || value.is_object()) continue;
    if (run["settings"].contains(key) && run["settings"][key] == value) continue;
    throw UsageError(fmt::format("{}: '{}' is beside 'settings' and not in it; which one counts?", path, key));
  }
}

SettingValue value_of(const Json& json, const std::string& key) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) return json.get<double>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) {
    refuse_nul(json.get_ref<const std::string&>(), fmt::format("'{}'", key));
    return json.get<std::string>();
  }
  throw UsageError(fmt::format("'{}' is {}; expected a text, a number, or true or false", key, json.type_name()));
}

// Where an error at this byte is, for people.
std::string line_and_column(const std::string& text, std::size_t byte) {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    column = text[i] == '\n' ? 1 : column + 1;
    line += text[i] == '\n' ? 1 : 0;
  }
  return fmt::format("line {}, column {}", line, column);
}

}  // namespace

Json settings_to_json(const Settings& settings) {
  Json object = Json::object();
  for (const Setting& row : setting_table()) {
    std::visit([&](const auto& value) { object[row.name] = value; }, get_value(settings, row));
  }
  return object;
}

void apply_json(Settings& settings, const Json& object, const std::string& where) {
  if (!object.is_object()) throw UsageError(where + " holds no JSON object of settings");
  try {
    if (object.contains("model")) set_value(settings, *find_setting("model"), value_of(object["model"], "model"));
    if (object.contains("preset")) {
      if (!object["preset"].is_string()) throw UsageError("'preset' is not a text");
      apply_preset(settings, object["preset"].get<std::string>());
    }
    std::set<std::string> seen;
    for (const auto& [key, json] : object.items()) {
      if (key == "preset") continue;
      refuse_nul(key, "the name of a setting");
      const Setting* const row = find_setting(key);
      if (row == nullptr) {
        throw UsageError(fmt::format("unknown setting '{}'{}", key, did_you_mean(key, setting_names())));
      }
      if (!seen.insert(row->name).second) throw UsageError(fmt::format("'{}' is there with '-' and with '_'", key));
      set_value(settings, *row, value_of(json, key));
    }
  } catch (const UsageError& error) {
    throw UsageError(where + ": " + error.what());
  }
}

Json read_json_file(const std::string& path) {
  const std::string text = read_file(path, kMaxConfigNbytes);
  // The library keeps the last of two values under one key. Keys of the objects that are open now:
  std::vector<std::set<std::string>> open_objects;
  const auto check = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth) throw UsageError(fmt::format("{} is nested more than {} deep", path, kMaxDepth));
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key && !open_objects.back().insert(parsed.get<std::string>()).second) {
      throw UsageError(fmt::format("{}: '{}' is there twice; which one counts?", path, parsed.get<std::string>()));
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& error) {
    throw UsageError(fmt::format("{} is not valid JSON: {}", path, line_and_column(text, error.byte)));
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("{} is not valid JSON: {}", path, error.what()));
  }
}

void apply_config_file(Settings& settings, const std::string& path) {
  const Json json = read_json_file(path);
  const bool is_run = json.is_object() && json.contains("settings");
  apply_json(settings, is_run ? json["settings"] : json, path);
  if (is_run) refuse_stray_settings(json, path);
}

}  // namespace heddle::tools
