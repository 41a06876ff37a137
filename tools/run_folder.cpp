#include "tools/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <optional>

#include "tools/config_file.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

constexpr const char* kDescription = "run.json";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr std::uint64_t kMaxMetricsNbytes = std::uint64_t{256} << 20;

// Paths need not be valid UTF-8, JSON must be.
std::string to_line(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// The epoch of a line of metrics.jsonl; nothing if the line is broken.
std::optional<std::int64_t> epoch_of(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("epoch") || !json["epoch"].is_number_integer()) return std::nullopt;
  return json["epoch"].get<std::int64_t>();
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

RunFolder RunFolder::create(const std::string& path) {
  RunFolder folder(path);
  for (const char* name : {kDescription, kMetrics, "checkpoints"}) {
    if (exists(folder.file(name))) {
      throw UsageError(
          fmt::format("--out {0}: the folder holds a run already ({1}); continue it with --resume {0}, or "
                      "choose another folder",
                      path, name));
    }
  }
  create_folders(folder.checkpoints_path());
  folder.lock();
  folder.open_metrics();
  return folder;
}

RunFolder RunFolder::open(const std::string& path) {
  RunFolder folder(path);
  if (!exists(folder.file(kDescription))) {
    throw UsageError(fmt::format("--resume {}: no run is there ({} is missing)", path, folder.file(kDescription)));
  }
  create_folders(folder.checkpoints_path());
  folder.lock();
  folder.open_metrics();
  return folder;
}

void RunFolder::lock() {
  lock_ = FileHandle(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_) throw IoError(path_, errno_text(errno));
  // File systems without locks are used without one.
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw IoError(path_, "another process is writing this run");
  }
}

void RunFolder::open_metrics() {
  metrics_ = FileHandle(::open(file(kMetrics).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!metrics_) throw IoError(file(kMetrics), errno_text(errno));
}

Json RunFolder::read_description() const { return read_json_file(file(kDescription)); }

void RunFolder::write_description(const Json& description) {
  write_file_atomically(file(kDescription), to_line(description, 2) + "\n");
}

void RunFolder::append_metrics(const Json& line) {
  const std::string text = to_line(line, -1) + "\n";
  const ssize_t n = ::write(metrics_.get(), text.data(), text.size());
  if (n == static_cast<ssize_t>(text.size())) return;
  throw IoError(file(kMetrics),
                n < 0 ? errno_text(errno) : "only a part of a line could be written; is the disk full?");
}

void RunFolder::drop_metrics_after(std::int64_t epoch) {
  const std::string text = read_file(file(kMetrics), kMaxMetricsNbytes);
  std::string kept;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    const std::optional<std::int64_t> found = epoch_of(line);
    if (found && *found <= epoch) kept += line + "\n";
  }
  if (kept == text) return;
  write_file_atomically(file(kMetrics), kept);
  open_metrics();
}

std::string new_run_path(const std::string& model, const std::string& dataset) {
  const std::string base =
      fmt::format("runs/{}-{}-{:%Y%m%d-%H%M%S}", model, dataset, fmt::localtime(std::time(nullptr)));
  std::string path = base;
  for (int i = 2; exists(path); ++i) path = fmt::format("{}-{}", base, i);
  return path;
}

}  // namespace heddle::tools
