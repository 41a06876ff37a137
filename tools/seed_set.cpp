#include "tools/seed_set.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "engine/core/file.h"
#include "engine/core/version.h"
#include "tools/config_file.h"
#include "tools/run_folder.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string description_of(const std::string& path) { return path + "/" + RunFolder::kSeedSet; }

}  // namespace

bool SeedSet::is_there(const std::string& path) { return exists(description_of(path)); }

SeedSet SeedSet::create(const std::string& path, const Settings& settings, const std::string& preset,
                        std::int64_t count) {
  const Setting& row = *find_setting("seed");
  if (settings.seed > static_cast<std::int64_t>(row.max) - (count - 1)) {
    throw UsageError(fmt::format("--seeds {} from --seed {} on: seeds end at {:.0f}", count, settings.seed, row.max));
  }
  RunFolder::check_new(path);
  SeedSet set(path.empty() ? RunFolder::make_named(settings.model, settings.dataset) : path);
  create_folders(set.path_);
  set.settings_ = settings;
  set.preset_ = preset;
  for (std::int64_t i = 0; i < count; ++i) set.seeds_.push_back(settings.seed + i);
  set.write();
  return set;
}

SeedSet SeedSet::read(const std::string& path) {
  SeedSet set(path);
  const std::string file = description_of(path);
  const Json json = read_json_file(file);
  if (!json.is_object() || !json.contains("settings") || !json.contains("seeds") || !json["seeds"].is_array() ||
      json["seeds"].empty()) {
    throw UsageError(file + " was not written by heddle train --seeds: it has no settings or no seeds");
  }
  apply_json(set.settings_, json["settings"], file);
  for (const Json& seed : json["seeds"]) {
    if (!seed.is_number_integer() || seed.get<std::int64_t>() < 0) {
      throw UsageError(file + ": 'seeds' is broken: expected whole numbers");
    }
    set.seeds_.push_back(seed.get<std::int64_t>());
  }
  if (json.contains("preset") && json["preset"].is_string()) set.preset_ = json["preset"].get<std::string>();
  if (json.contains("result")) set.result_ = json["result"];
  return set;
}

std::string SeedSet::run_path(std::int64_t seed) const { return fmt::format("{}/seed-{}", path_, seed); }

std::vector<std::string> SeedSet::begun_runs() const {
  std::vector<std::string> paths;
  for (const std::int64_t seed : seeds_) {
    if (RunFolder::is_there(run_path(seed))) paths.push_back(run_path(seed));
  }
  return paths;
}

void SeedSet::discard_if_unused() const noexcept {
  for (const std::int64_t seed : seeds_) {
    if (exists(run_path(seed))) return;
  }
  ::unlink(description_of(path_).c_str());
  ::rmdir(path_.c_str());
}

void SeedSet::change_settings(const Settings& settings) {
  if (settings == settings_) return;
  before_ = settings_;
  settings_ = settings;
  write();
}

void SeedSet::restore_settings() {
  if (!before_) return;
  settings_ = *before_;
  before_.reset();
  write();
}

void SeedSet::write_result(const Json& result) {
  result_ = result;
  write();
}

void SeedSet::write() const {
  Json json;
  json["heddle"] = version();
  json["preset"] = preset_;
  json["settings"] = settings_to_json(settings_);
  json["seeds"] = seeds_;
  if (!result_.is_null()) json["result"] = result_;
  write_file_atomically(description_of(path_), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace heddle::tools
