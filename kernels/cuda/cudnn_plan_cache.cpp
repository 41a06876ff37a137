#include "kernels/cuda/cudnn_plan_cache.h"

#include <cctype>
#include <cstdlib>
#include <exception>
#include <sstream>

#include "engine/core/file.h"

namespace heddle::cuda {
namespace {

constexpr std::string_view kHeading = "heddle cudnn plans 1";
constexpr std::uint64_t kMaxFileNbytes = 16 << 20;

// "67 0=1 14=3"
std::optional<StoredPlan> plan_from_words(std::istringstream& words) {
  StoredPlan plan;
  if (!(words >> plan.engine)) return {};
  std::int64_t type = 0, value = 0;
  char equals = 0;
  while (words >> type) {
    if (!(words >> equals >> value) || equals != '=') return {};
    plan.settings.emplace_back(type, value);
  }
  if (!words.eof()) return {};
  return plan;
}

}  // namespace

std::string plans_to_text(const std::string& owner, const std::map<std::string, StoredPlan>& plans) {
  std::ostringstream text;
  text << kHeading << "\n" << owner << "\n";
  for (const auto& [key, plan] : plans) {
    text << key << " " << plan.engine;
    for (const auto& [type, value] : plan.settings) text << " " << type << "=" << value;
    text << "\n";
  }
  text << "end " << plans.size() << "\n";
  return text.str();
}

std::optional<std::map<std::string, StoredPlan>> plans_from_text(const std::string& owner, std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string line;
  if (!std::getline(lines, line) || line != kHeading || !std::getline(lines, line) || line != owner) return {};
  std::map<std::string, StoredPlan> plans;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "end") {
      std::size_t count = 0;
      if (!(words >> count) || count != plans.size()) return {};
      return plans;
    }
    std::optional<StoredPlan> plan = plan_from_words(words);
    if (!plan) return {};
    plans.insert_or_assign(key, std::move(*plan));
  }
  return {};
}

PlanCacheFile::PlanCacheFile(std::string folder, std::string owner)
    : folder_(std::move(folder)), owner_(std::move(owner)) {
  if (folder_.empty()) return;
  std::string name = owner_;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  }
  path_ = folder_ + "/cudnn-" + name + ".plans";
  read();
}

std::string PlanCacheFile::default_folder() {
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::string(cache) + "/heddle";
  }
  if (const char* const home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::string(home) + "/.cache/heddle";
  }
  return {};
}

void PlanCacheFile::read() {
  try {
    if (auto plans = plans_from_text(owner_, read_file(path_, kMaxFileNbytes))) plans_.merge(*plans);
  } catch (const std::exception&) {
    // No cache.
  }
}

std::optional<StoredPlan> PlanCacheFile::find(const std::string& key) const {
  const auto found = plans_.find(key);
  if (found == plans_.end()) return {};
  return found->second;
}

void PlanCacheFile::store(const std::string& key, const StoredPlan& plan) noexcept {
  try {
    plans_.insert_or_assign(key, plan);
    if (folder_.empty()) return;
    read();
    create_folders(folder_);
    write_file_atomically(path_, plans_to_text(owner_, plans_));
  } catch (const std::exception&) {
    // The plan holds for this process.
  }
}

}  // namespace heddle::cuda
