// Settings as JSON: configuration files of `--config`, and the `settings` of run.json.
#pragma once

#include <string>

#include "tools/json.h"
#include "tools/settings.h"

namespace heddle::tools {

// Every setting under its name.
Json settings_to_json(const Settings& settings);

// Sets what the object holds; `where` begins the messages. A key "preset" is applied before all others.
// Throws: UsageError for an unknown key (with the nearest), a wrong type or value.
void apply_json(Settings& settings, const Json& object, const std::string& where);

// Reads a configuration file, or a run.json, whose `settings` are taken.
// Throws: IoError if it cannot be read; UsageError if it is not JSON, or as apply_json.
void apply_config_file(Settings& settings, const std::string& path);

// A JSON file of at most 1 MiB. Throws: IoError; UsageError with line and column if it is not JSON, or if it is nested
// more than 64 deep.
Json read_json_file(const std::string& path);

}  // namespace heddle::tools
