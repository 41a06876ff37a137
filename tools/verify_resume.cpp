#include "tools/verify_resume.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/file.h"
#include "tools/checkpoint_compare.h"
#include "tools/command.h"
#include "tools/training_job.h"

namespace heddle::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxMetricsNbytes = std::uint64_t{16} << 20;

// Removed with all that is in it.
class WorkFolder {
 public:
  WorkFolder() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    path_ = (parent / "heddle-verify-resume-XXXXXX").string();
    if (error || ::mkdtemp(path_.data()) == nullptr) {
      throw IoError(path_, "cannot be created: " + (error ? error.message() : errno_text(errno)));
    }
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// One training, or a part of one. Its lines are for nobody: what it leaves is compared.
int train(const ResumeProof& proof, TrainOptions options, StopLimits limits) {
  const FileHandle nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  Console quiet(nowhere.get());
  const bool resumes = options.resumed.has_value();
  RankGroup ranks = make_thread_ranks(proof.settings, proof.runtime);
  StopAgreement stop(proof.interrupt, static_cast<int>(proof.settings.ranks), limits, steps_ahead(ranks));
  return run_training_threads({.options = options,
                               .resumes = resumes,
                               .runtime = proof.runtime,
                               .device = proof.runtime.device,
                               .description = proof.description,
                               .data = proof.data,
                               .train = proof.train.front(),
                               .test = proof.test.front(),
                               .interrupt = proof.interrupt,
                               .stop = stop,
                               .out = quiet,
                               .err = proof.err},
                              std::move(ranks), proof.train, proof.test);
}

// As `heddle train --resume RUN` does it.
int resume(const ResumeProof& proof, const std::string& run) {
  return train(proof, read_train_options({.flags = {{"resume", run}}}), {});
}

std::string newest_checkpoint(const std::string& run) { return checkpoint::resolve_checkpoint(run).path; }

// The lines of metrics.jsonl without what depends on the clock.
std::vector<std::string> metrics_of(const std::string& run) {
  std::vector<std::string> lines;
  std::istringstream text(read_file(run + "/metrics.jsonl", kMaxMetricsNbytes));
  for (std::string line; std::getline(text, line);) {
    Json json = Json::parse(line);
    json.erase("seconds");
    json.erase("images_per_second");
    lines.push_back(json.dump());
  }
  return lines;
}

// Compares the run with the whole one. Whether they are the same.
bool compare(const ResumeProof& proof, const std::string& whole, const std::string& run, const std::string& name) {
  const CheckpointComparison found = compare_checkpoints(newest_checkpoint(whole), newest_checkpoint(run));
  std::string difference = found.difference;
  const std::vector<std::string> expected = metrics_of(whole), lines = metrics_of(run);
  for (std::size_t i = 0; difference.empty() && i < std::max(expected.size(), lines.size()); ++i) {
    const std::string a = i < expected.size() ? expected[i] : "nothing", b = i < lines.size() ? lines[i] : "nothing";
    if (a != b) difference = fmt::format("the metrics of epoch {} differ: {} and {}", i + 1, a, b);
  }
  if (difference.empty()) {
    proof.out.line(
        fmt::format("{}: the same bits in {} tensors of {} values, in all counters, and in the metrics of {} epochs",
                    name, found.tensors, found.values, lines.size()));
    return true;
  }
  proof.out.line(fmt::format("{}: not the bits of the uninterrupted training: {}", name, difference));
  if (!proof.runtime.device.is_cpu() && !proof.settings.deterministic && !proof.settings.reproducible) {
    proof.out.line("the kernels of this device need not be repeatable without --deterministic");
  }
  if (proof.settings.ranks > 1 && !proof.settings.sync_bn && !proof.settings.reproducible) {
    proof.out.line("running statistics of batch norms are averaged over the ranks where a run stops, which rounds");
  }
  return false;
}

// The run as a kill after the step would have left it: without the checkpoints from after it.
void copy_as_if_killed(const std::string& whole, const std::string& run, std::int64_t step) {
  fs::copy(whole, run, fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints")) {
    if (checkpoint::read_training_state(entry.path().string()).step > step ||
        entry.path().filename() == checkpoint::kBestCheckpoint) {
      fs::remove(entry.path());
    }
  }
}

}  // namespace

int verify_resume(const ResumeProof& proof) {
  const WorkFolder folder;
  const std::string whole = folder / "whole";
  const auto options_for = [&](const std::string& out) {
    TrainOptions options;
    options.settings = proof.settings;
    options.out = out;
    return options;
  };
  if (const int code = train(proof, options_for(whole), {}); code != exit_code::kDone) return code;
  const checkpoint::TrainingState state = checkpoint::read_training_state(newest_checkpoint(whole));
  const std::int64_t batches = state.step / state.epoch;
  proof.out.line(fmt::format("in one go: {} epochs of {} steps", state.epoch, batches));

  bool same = true;
  const auto resumed = [&](const std::string& run, const std::string& where) {
    const checkpoint::TrainingState from = checkpoint::read_training_state(newest_checkpoint(run));
    const int code = resume(proof, run);
    if (code != exit_code::kDone) return code;
    same = compare(proof, whole, run,
                   fmt::format("stopped {} {} after step {}, resumed", where, from.epoch + (from.batch > 0 ? 1 : 0),
                               from.step)) &&
           same;
    return code;
  };
  for (std::int64_t epoch = 0; epoch < std::min<std::int64_t>(state.epoch, 2); ++epoch) {
    const std::string run = folder / fmt::format("inside{}", epoch + 1);
    const std::int64_t step = epoch * batches + std::max<std::int64_t>(batches / 2, 1);
    int code = train(proof, options_for(run), {.steps = step});
    if (code == exit_code::kDone) code = resumed(run, "in epoch");
    if (code != exit_code::kDone) return code;
  }
  if (state.epoch > 1) {
    const std::string run = folder / "between";
    copy_as_if_killed(whole, run, batches);
    if (const int code = resumed(run, "behind epoch"); code != exit_code::kDone) return code;
  }
  return same ? exit_code::kDone : exit_code::kFailed;
}

}  // namespace heddle::tools
