// Names, search and clean-up of checkpoints in a folder; declared in checkpoint.h.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/file.h"

namespace heddle::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr const char* kSupersededSuffix = ".superseded";
constexpr const char* kSubfolder = "checkpoints";
constexpr std::size_t kStepDigits = 12;

std::string step_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  const std::string zeros(digits.size() < kStepDigits ? kStepDigits - digits.size() : 0, '0');
  return std::string(kStepPrefix) + zeros + digits + std::string(kSuffix);
}

// The step in a name that step_name() gives, with the given ending behind it.
std::optional<std::int64_t> step_of(std::string name, std::string_view ending) {
  if (!name.ends_with(ending)) return std::nullopt;
  name.resize(name.size() - ending.size());
  const std::size_t around = kStepPrefix.size() + kSuffix.size();
  if (name.size() < around + kStepDigits || name.size() > around + 18) return std::nullopt;
  const std::string digits = name.substr(kStepPrefix.size(), name.size() - around);
  const bool all_digits = std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!all_digits) return std::nullopt;
  const std::int64_t step = std::stoll(digits);
  return step_name(step) == name ? std::optional(step) : std::nullopt;
}

// Steps of the numbered checkpoints whose names have the ending, newest first.
std::vector<std::int64_t> list_steps(const std::string& folder, std::string_view ending = {}) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (const auto step = step_of(entries->path().filename().string(), ending)) steps.push_back(*step);
  }
  if (error) throw IoError(folder, "cannot be read: " + error.message());
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::string join_path(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const std::string& folder) {
  std::vector<std::string> candidates;
  for (const std::int64_t step : list_steps(folder)) candidates.push_back(join_path(folder, step_name(step)));
  if (const std::string best = join_path(folder, kBestCheckpoint); exists(best)) candidates.push_back(best);
  FoundCheckpoint found;
  for (const std::string& path : candidates) {
    try {
      verify_checkpoint(path);
      found.path = path;
      return found;
    } catch (const IoError& e) {
      found.skipped.emplace_back(e.what());
    }
  }
  if (found.skipped.empty()) return std::nullopt;
  throw IoError(folder, join_text("none of its ", found.skipped.size(),
                                  " checkpoints is whole; the newest: ", found.skipped.front()));
}

FoundCheckpoint resolve_checkpoint(const std::string& path, Prefer prefer) {
  if (!exists(path)) throw IoError(path, "does not exist");
  if (!is_folder(path)) return {path, {}};
  const std::string below = join_path(path, kSubfolder);
  const std::string folder = is_folder(below) ? below : path;
  std::vector<std::string> skipped;
  if (const std::string best = join_path(folder, kBestCheckpoint); prefer == Prefer::best && exists(best)) {
    try {
      verify_checkpoint(best);
      return {best, {}};
    } catch (const IoError& e) {
      skipped.emplace_back(e.what());
    }
  }
  std::optional<FoundCheckpoint> found = find_checkpoint(folder);
  if (!found.has_value()) throw IoError(folder, "holds no checkpoint (step-*.safetensors or best.safetensors)");
  found->skipped.insert(found->skipped.begin(), skipped.begin(), skipped.end());
  return *found;
}

CheckpointFolder::CheckpointFolder(std::string folder, int keep_last)
    : folder_(std::move(folder)), keep_last_(keep_last) {
  HEDDLE_CHECK(keep_last >= 1, "checkpoints: keep the last ", keep_last, ", at least 1 is needed");
  create_folders(folder_);
  remove_stale_temp_files(folder_);
}

std::string CheckpointFolder::best_path() const { return join_path(folder_, kBestCheckpoint); }

std::string CheckpointFolder::save(nn::Module& model, optim::Optimizer* optimizer, const TrainingState& state,
                                   bool is_best) {
  HEDDLE_CHECK(state.step >= 0 && state.step < 1'000'000'000'000'000'000, "checkpoints: step ", state.step,
               " is out of range");
  std::string path = join_path(folder_, step_name(state.step));
  // The best one first: if this process is killed in between, the run continues before the step and saves it again.
  if (is_best) save_checkpoint(best_path(), model, optimizer, state);
  save_checkpoint(path, model, optimizer, state);
  int kept = 0;
  std::error_code ignored;  // a file that stays only costs room
  for (const std::int64_t step : list_steps(folder_)) {
    const std::string old_path = join_path(folder_, step_name(step));
    if (step > state.step) {
      // The run was set back to an earlier step: its later files must not be taken for its newest state.
      fs::rename(old_path, old_path + kSupersededSuffix, ignored);
    } else if (++kept > keep_last_) {
      fs::remove(old_path, ignored);
    }
  }
  // Those that the run has overtaken have a successor.
  kept = 0;
  for (const std::int64_t step : list_steps(folder_, kSupersededSuffix)) {
    if (step > state.step && ++kept <= keep_last_) continue;
    fs::remove(join_path(folder_, step_name(step) + kSupersededSuffix), ignored);
  }
  return path;
}

}  // namespace heddle::checkpoint
