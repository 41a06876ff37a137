// Saving never destroys: a run that is killed again and again while it saves after every step, and full disks.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "engine/checkpoint/checkpoint.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

// Contents of all files of a folder, by name.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = get_file(entry.path().string());
  }
  return files;
}

}  // namespace

TEST_CASE("fifty kills of a run that saves after every step lose no more than the step that was at work") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 10);
  const std::string run = folder / "run", checkpoints = run + "/checkpoints";
  const std::vector<std::string> recipe = {"--momentum", "0.9", "--ema", "0.9", "--augment", "crop-flip"};
  const auto training = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.begin(), recipe.begin(), recipe.end());
    return small_training(folder.path(), out, more);
  };
  std::mt19937 random(11);
  std::int64_t step = 0;
  int interrupted_saves = 0;
  for (int round = 0; round < 50; ++round) {
    ProcessOptions options;
    options.arguments = std::vector<std::string>{"train", "--resume", run};
    if (round == 0) {
      options.arguments =
          training(run, {"--epochs", "100000", "--batch-size", "8", "--checkpoint-steps", "1", "--keep", "2"});
    }
    Process process(heddle_path(), options);
    REQUIRE(process.wait_for_output(round == 0 ? "run      " : "resume   "));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 120'000));
    process.send_signal(SIGKILL);
    REQUIRE(process.wait().signal == SIGKILL);

    INFO("round " << round);
    // Two numbered ones, the best, what was at work, and older ones whose removal was cut short, which the next save
    // makes up for.
    std::size_t wholes = 0, others = 0;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints)) {
      (entry.path().extension() == ".safetensors" ? wholes : others) += 1;
    }
    CHECK(wholes <= 6);
    CHECK(others <= 1);
    interrupted_saves += others > 0 ? 1 : 0;
    if (wholes == 0) {
      CHECK(step == 0);
      continue;
    }
    const auto found = checkpoint::find_checkpoint(checkpoints);
    REQUIRE(found.has_value());
    CHECK(found->skipped.empty());
    const std::int64_t now = checkpoint::read_training_state(found->path).step;
    CHECK(now >= step);
    step = now;
  }
  CHECK(step > 0);
  INFO(interrupted_saves << " of 50 kills came while a file was written");

  // What is left is the training that nobody has killed.
  const std::int64_t epochs = step / 8 + 1;
  const ProcessResult rest =
      heddle({"train", "--resume", run, "--epochs", std::to_string(epochs), "--checkpoint-steps", "0"});
  INFO(rest.out << rest.err);
  REQUIRE(rest.exit_code == 0);
  REQUIRE(heddle(training(folder / "whole", {"--epochs", std::to_string(epochs), "--batch-size", "8"})).exit_code == 0);
  CHECK(weights_of(run) == weights_of(folder / "whole"));
  CHECK((metrics_of(run) == metrics_of(folder / "whole")));
  const auto left = files_of(checkpoints);
  CHECK(left.size() == 3);
  for (const auto& [name, content] : left) {
    INFO(name);
    CHECK(name.ends_with(".safetensors"));
  }
}

TEST_CASE("a file that may not grow ends the run with path and reason, and what was saved before stays") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 10);
  const std::string run = folder / "run";
  REQUIRE(heddle(small_training(folder.path(), run, {"--epochs", "2"})).exit_code == 0);
  const auto before = files_of(run + "/checkpoints");
  ProcessOptions options;
  options.max_file_nbytes = 100000;
  const ProcessResult result = heddle({"train", "--resume", run, "--epochs", "4", "--checkpoint-steps", "1"}, options);
  INFO(result.err);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, run + "/checkpoints/step-000000000005.safetensors: cannot be written at byte 100000: "
                                   "File too large"));
  CHECK((files_of(run + "/checkpoints") == before));
  CHECK(heddle({"train", "--resume", run, "--checkpoint-steps", "0"}).exit_code == 0);
  CHECK(metrics_of(run).size() == 4);
}

TEST_CASE("a full disk ends the run with path and reason, and what was saved before can be used") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 10);
  // A disk of its own, where the rights to make one are there.
  const std::string disk = folder / "disk";
  std::filesystem::create_directory(disk);
  const auto with_disk = [&](const std::string& command) {
    ProcessOptions options;
    options.arguments = {"-Urm", "sh", "-c", "mount -t tmpfs -o size=700k tmpfs '" + disk + "' && " + command};
    return run_process("/usr/bin/unshare", options);
  };
  if (::access("/usr/bin/unshare", X_OK) != 0 || with_disk("true").exit_code != 0) {
    WARN("no file system of its own can be made here");
    return;
  }
  std::string command;
  for (const std::string& argument : small_training(folder.path(), disk + "/run", {"--epochs", "9", "--keep", "9"})) {
    command += " '" + argument + "'";
  }
  // Its own exit code, then whether its checkpoint is of use.
  const ProcessResult result =
      with_disk("{ '" + heddle_path() + "'" + command + "; echo code $?; '" + heddle_path() + "' eval --checkpoint '" +
                disk + "/run'; ls '" + disk + "/run/checkpoints'; }");
  INFO(result.out << result.err);
  CHECK(contains(result.out, "code 1"));
  CHECK(contains(result.err, disk + "/run/checkpoints/"));
  CHECK(contains(result.err, "No space left on device"));
  CHECK(contains(result.out, "weights  " + disk + "/run/checkpoints/step-0000000000"));
  CHECK(result.exit_code == 0);
}

}  // namespace heddle::test
