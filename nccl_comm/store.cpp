#include "nccl_comm/store.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <system_error>

#include "engine/core/error.h"

namespace heddle::comm {

Store::~Store() = default;

void throw_if_cancelled(const std::function<bool()>& cancelled) {
  if (cancelled && cancelled()) throw CommError("waiting for the other ranks was cancelled");
}

struct StoreMemory {
  std::mutex mutex;
  std::map<std::string, std::string> values;
};

namespace {

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(std::shared_ptr<StoreMemory> memory) : memory_(std::move(memory)) {}

  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(memory_->mutex);
    memory_->values[key] = value;
  }
  std::optional<std::string> get(const std::string& key) override {
    const std::lock_guard lock(memory_->mutex);
    const auto found = memory_->values.find(key);
    return found == memory_->values.end() ? std::nullopt : std::optional(found->second);
  }
  std::string where() const override { return "memory of this process"; }

 private:
  std::shared_ptr<StoreMemory> memory_;
};

class FileStore final : public Store {
 public:
  FileStore(std::string folder, bool remove_folder) : folder_(std::move(folder)), remove_folder_(remove_folder) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) throw IoError(folder_, "cannot be made for the ranks to meet in: " + error.message());
  }

  void set(const std::string& key, const std::string& value) override {
    // Renamed into place, so that nobody reads half of it.
    const std::string path = path_of(key);
    const std::string unfinished = join_text(path, ".", ::getpid(), ".new");
    {
      std::ofstream file(unfinished, std::ios::binary);
      file << value;
      if (!file.flush()) throw IoError(unfinished, "cannot be written");
    }
    std::error_code error;
    std::filesystem::rename(unfinished, path, error);
    if (error) throw IoError(path, "cannot be written: " + error.message());
  }
  std::optional<std::string> get(const std::string& key) override {
    std::ifstream file(path_of(key), std::ios::binary);
    if (!file) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void finish() noexcept override {
    std::error_code ignored;
    if (remove_folder_) std::filesystem::remove_all(folder_, ignored);
  }
  std::string where() const override { return "the folder " + folder_; }

 private:
  std::string path_of(std::string key) const {
    for (char& c : key) {
      if (c == '/') c = '_';
    }
    return folder_ + "/" + key;
  }

  std::string folder_;
  bool remove_folder_;
};

}  // namespace

std::shared_ptr<StoreMemory> make_store_memory() { return std::make_shared<StoreMemory>(); }

std::unique_ptr<Store> make_memory_store(std::shared_ptr<StoreMemory> memory) {
  return std::make_unique<MemoryStore>(std::move(memory));
}

std::unique_ptr<Store> make_file_store(const std::string& folder, bool remove_folder) {
  return std::make_unique<FileStore>(folder, remove_folder);
}

}  // namespace heddle::comm
