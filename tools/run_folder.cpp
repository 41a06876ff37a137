#include "tools/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <optional>
#include <vector>

#include "tools/config_file.h"
#include "tools/system_info.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

constexpr const char* kDescription = "run.json";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kEvaluation = "evaluation.json";
constexpr const char* kParent = "runs";  // of runs without a folder of the user's choice
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

bool RunFolder::is_there(const std::string& path) { return exists(RunFolder(path).file(kDescription)); }

void RunFolder::check_new(const std::string& path) {
  if (path.empty()) {
    const std::string reason = why_not_writable(kParent);
    if (!reason.empty()) throw IoError(kParent, "no run can be written there: " + reason);
    return;
  }
  RunFolder(path).refuse_run();
  // Whatever speaks against a folder (names that are too long, links to nowhere, permissions) shows when it is made.
  std::vector<std::string> made;
  for (std::filesystem::path part(path); !part.empty() && !exists(part.string()); part = part.parent_path()) {
    made.push_back(part.string());
  }
  std::string reason;
  try {
    create_folders(path);
    reason = why_not_writable(path);
  } catch (const IoError& error) {
    reason = std::string(error.what()).substr(path.size() + 2);  // without the path
  }
  for (const std::string& part : made) ::rmdir(part.c_str());
  if (!reason.empty()) throw IoError(path, "no run can be written there: " + reason);
}

RunFolder RunFolder::create(const std::string& path) {
  RunFolder folder(path);
  create_folders(path);
  folder.lock();
  // Under the lock: another process may just have finished a run there.
  folder.refuse_run();
  create_folders(folder.checkpoints_path());
  folder.open_metrics();
  return folder;
}

RunFolder RunFolder::create_named(const std::string& model, const std::string& dataset) {
  return create(make_named(model, dataset));
}

std::string RunFolder::make_named(const std::string& model, const std::string& dataset) {
  const std::string base =
      fmt::format("{}/{}-{}-{:%Y%m%d-%H%M%S}", kParent, model, dataset, fmt::localtime(std::time(nullptr)));
  create_folders(kParent);
  std::string path = base;
  // Two runs may begin within a second: whoever makes the folder has the name.
  for (int i = 2; ::mkdir(path.c_str(), 0777) != 0; ++i) {
    const int error = errno;
    if (error == EEXIST) {
      path = fmt::format("{}-{}", base, i);
    } else if (error == ENOENT) {
      create_folders(kParent);  // another process tried it out and took it away again
    } else {
      throw IoError(path, "cannot be created as a folder: " + errno_text(error));
    }
  }
  return path;
}

RunFolder RunFolder::open_to_read(const std::string& path) {
  RunFolder folder(path);
  if (!exists(folder.file(kDescription))) {
    throw UsageError(fmt::format("--resume {}: no run is there ({} is missing)", path, folder.file(kDescription)));
  }
  return folder;
}

RunFolder RunFolder::open(const std::string& path) {
  RunFolder folder = open_to_read(path);
  create_folders(folder.checkpoints_path());
  folder.lock();
  folder.open_metrics();
  return folder;
}

// What a process left that was killed before it had described its run is no run: nothing could continue it.
void RunFolder::refuse_run() const {
  std::error_code ignored;
  const char* found = nullptr;
  if (exists(file(kDescription))) found = kDescription;
  if (std::filesystem::file_size(file(kMetrics), ignored) > 0 && !ignored) found = kMetrics;
  if (!std::filesystem::is_empty(checkpoints_path(), ignored) && !ignored) found = "checkpoints";
  if (exists(file(kSeedSet))) found = kSeedSet;
  if (found == nullptr) return;
  throw UsageError(
      fmt::format("--out {0}: the folder holds a run already ({1}); continue it with --resume {0}, or "
                  "choose another folder",
                  path_, found));
}

void RunFolder::lock() {
  lock_ = FileHandle(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_) throw IoError(path_, errno_text(errno));
  // File systems without locks are used without one.
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw IoError(path_, "another process is writing this run");
  }
  // Of a process that was killed while it wrote the description.
  remove_stale_temp_files(path_);
}

void RunFolder::open_metrics() {
  // A pipe there would block, and a device take the lines.
  if (exists(file(kMetrics))) const InputFile regular(file(kMetrics));
  metrics_ = FileHandle(::open(file(kMetrics).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!metrics_) throw IoError(file(kMetrics), errno_text(errno));
}

Json RunFolder::read_description() const { return read_json_file(file(kDescription)); }

void RunFolder::write_description(const Json& description) {
  write_file_atomically(file(kDescription), to_line(description, 2) + "\n");
}

void RunFolder::write_evaluation(const Json& evaluation) {
  write_file_atomically(file(kEvaluation), to_line(evaluation, -1) + "\n");
}

void RunFolder::append_metrics(const Json& line) {
  const std::string text = to_line(line, -1) + "\n";
  const ssize_t n = ::write(metrics_.get(), text.data(), text.size());
  if (n == static_cast<ssize_t>(text.size())) return;
  throw IoError(file(kMetrics),
                n < 0 ? errno_text(errno) : "only a part of a line could be written; is the disk full?");
}

bool RunFolder::has_metrics() const {
  return exists(file(kMetrics)) && !read_file(file(kMetrics), kMaxMetricsNbytes).empty();
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

}  // namespace heddle::tools
