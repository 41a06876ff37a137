// Which engines were chosen for which graphs, kept on disk: the next start of the program need not search or measure
// again. One file for each model of GPU and version of cuDNN, $XDG_CACHE_HOME/heddle/cudnn-*.plans (or
// ~/.cache/heddle). A cache: a file that is missing, of another version or damaged counts as empty, and one that cannot
// be written is left alone. It does not know cuDNN: an engine is a number with settings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::cuda {

struct StoredPlan {
  std::int64_t engine = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> settings;  // number of the setting, value
  friend bool operator==(const StoredPlan&, const StoredPlan&) = default;
};

// The file's text, and back. Nothing if the text is not whole, or of another device or version.
std::string plans_to_text(const std::string& owner, const std::map<std::string, StoredPlan>& plans);
std::optional<std::map<std::string, StoredPlan>> plans_from_text(const std::string& owner, std::string_view text);

class PlanCacheFile {
 public:
  // folder: of the cache file; empty: nothing is kept. owner: library's version and model of the GPU.
  PlanCacheFile(std::string folder, std::string owner);
  // The folder that the environment asks for, or empty.
  static std::string default_folder();

  // key: hexadecimal text. Never throws.
  std::optional<StoredPlan> find(const std::string& key) const;
  // Adds to what the file holds by now, and writes it as a whole. Never throws.
  void store(const std::string& key, const StoredPlan& plan) noexcept;

 private:
  void read();

  std::string folder_, path_, owner_;
  std::map<std::string, StoredPlan> plans_;
};

}  // namespace heddle::cuda
