// The folder of one training run: run.json, metrics.jsonl, evaluation.json, checkpoints/. Knows file names and nothing
// of training.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/file.h"
#include "tools/json.h"

namespace heddle::tools {

// Holds a lock while it lives, so that two processes cannot write one run.
class RunFolder {
 public:
  // The file of a set of runs (see seed_set.h), whose folder holds no run itself.
  static constexpr const char* kSeedSet = "seeds.json";

  // Whether the folder holds a run.
  static bool is_there(const std::string& path);
  // Finds out whether create() would work, by making the folder and removing it again; for an empty path whether
  // create_named() would. Throws: as create().
  static void check_new(const std::string& path);
  // Makes the folder (and those above it). An existing one must hold no run. Throws: IoError; UsageError if it holds a
  // run or a set of runs.
  static RunFolder create(const std::string& path);
  // The same for "runs/lenet-fashion-mnist-20260131-101500", with a number behind it if that exists.
  static RunFolder create_named(const std::string& model, const std::string& dataset);
  // Makes the folder alone and returns its path. Throws: IoError.
  static std::string make_named(const std::string& model, const std::string& dataset);
  // Opens the folder of an earlier run. Throws: IoError; UsageError if it holds no run.
  static RunFolder open(const std::string& path);
  // The same for one who only reads: the folder may be another process's.
  static RunFolder open_to_read(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }

  // run.json as it is on the disk. Throws: IoError; UsageError if it is broken.
  Json read_description() const;
  void write_description(const Json& description);

  // Replaces evaluation.json. Throws: IoError.
  void write_evaluation(const Json& evaluation);

  // Whether an epoch was recorded.
  bool has_metrics() const;
  // Adds one line to metrics.jsonl; it is in the file when the call returns. Throws: IoError.
  void append_metrics(const Json& line);
  // Keeps only whole lines whose "epoch" is at most `epoch`: what a stopped run wrote after its last checkpoint is
  // written again. Throws: IoError.
  void drop_metrics_after(std::int64_t epoch);

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  std::string file(const char* name) const { return path_ + "/" + name; }
  // Throws: UsageError if the folder holds a run.
  void refuse_run() const;
  void lock();
  void open_metrics();

  std::string path_;
  FileHandle lock_;
  FileHandle metrics_;
};

}  // namespace heddle::tools
