// The folder of a set of runs that differ in nothing but their seed: seeds.json, and a folder for each run. Knows file
// names and nothing of training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/json.h"
#include "tools/settings.h"

namespace heddle::tools {

class SeedSet {
 public:
  // Whether the folder holds a set.
  static bool is_there(const std::string& path);
  // Makes the folder, and describes `count` runs of these settings, the first with their seed and each with the next
  // one. path: "" = "runs/MODEL-DATASET-TIME". Throws: IoError; UsageError if it holds a run or a set, or the seeds end
  // before.
  static SeedSet create(const std::string& path, const Settings& settings, const std::string& preset,
                        std::int64_t count);
  // Throws: IoError; UsageError if seeds.json is broken.
  static SeedSet read(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  const std::vector<std::int64_t>& seeds() const noexcept { return seeds_; }
  // Of all runs but for the seed.
  const Settings& settings() const noexcept { return settings_; }
  const std::string& preset() const noexcept { return preset_; }
  std::string run_path(std::int64_t seed) const;
  // Paths of the runs that were begun.
  std::vector<std::string> begun_runs() const;

  // Takes seeds.json and the folder away again if no run was begun.
  void discard_if_unused() const noexcept;

  // Replaces seeds.json: other settings for the runs to come, or what came out. Throws: IoError.
  void change_settings(const Settings& settings);
  // The settings before change_settings(), if a run refuses the new ones.
  void restore_settings();
  void write_result(const Json& result);

 private:
  explicit SeedSet(std::string path) : path_(std::move(path)) {}
  void write() const;

  std::string path_;
  Settings settings_;
  std::optional<Settings> before_;  // change_settings()
  std::string preset_;
  std::vector<std::int64_t> seeds_;
  Json result_;  // null until all are done
};

}  // namespace heddle::tools
