// Interrupts: the first saves and leaves in order, the second leaves at once.
#include <unistd.h>

#include <csignal>
#include <tuple>

#include "tests/support/catch.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

ProcessOptions long_training(const std::string& data, const std::string& out) {
  ProcessOptions options;
  options.arguments = small_training(data, out, {"--epochs", "100000", "--batch-size", "64"});
  return options;
}

}  // namespace

TEST_CASE("SIGINT, SIGTERM and SIGHUP finish the step, save, and give 130, 143 and 129") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 2000, 200);
  for (const auto& [number, code, name] :
       {std::tuple{SIGINT, 130, "SIGINT"}, std::tuple{SIGTERM, 143, "SIGTERM"}, std::tuple{SIGHUP, 129, "SIGHUP"}}) {
    const std::string run = folder / name;
    Process process(heddle_path(), long_training(folder.path(), run));
    REQUIRE(process.wait_for_output("epoch 2/"));
    process.send_signal(number);
    const ProcessResult result = process.wait();
    CHECK(result.exit_code == code);
    CHECK(contains(result.out, "interrupted by " + std::string(name)));
    CHECK(json_file(run + "/run.json")["result"]["finished"] == false);
    CHECK(heddle({"eval", "--checkpoint", run}).exit_code == 0);
  }
}

TEST_CASE("under nohup a closed terminal does not end a run") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 2000, 200);
  std::string command = "trap '' HUP; exec '" + heddle_path() + "'";
  for (const std::string& argument : long_training(folder.path(), folder / "run").arguments) {
    command += " '" + argument + "'";
  }
  ProcessOptions options;
  options.arguments = {"-c", command};
  Process process("/bin/sh", options);
  REQUIRE(process.wait_for_output("epoch 1/"));
  process.send_signal(SIGHUP);
  REQUIRE(process.wait_for_output("epoch 3/"));
  process.send_signal(SIGTERM);
  CHECK(process.wait().exit_code == 143);
}

TEST_CASE("signals at any moment leave a run that can be continued") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 600, 600);
  for (int delay_ms = 0; delay_ms < 240; delay_ms += 16) {
    const std::string run = folder / ("run" + std::to_string(delay_ms));
    Process process(heddle_path(), long_training(folder.path(), run));
    REQUIRE(process.wait_for_output("run      "));
    ::usleep(static_cast<useconds_t>(delay_ms * 1000));
    process.send_signal(SIGTERM);
    const bool twice = delay_ms % 32 == 0;
    if (twice) process.send_signal(SIGTERM);
    const ProcessResult result = process.wait();
    INFO(result.out);
    INFO(result.err);
    CHECK(result.exit_code == 143);
    const std::string one_more = std::to_string(metrics_of(run).size() + 1);
    const ProcessResult rest = heddle({"train", "--resume", run, "--epochs", one_more});
    INFO(rest.err);
    CHECK(rest.exit_code == 0);
  }
}

TEST_CASE("a signal before the first step leaves nothing behind") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 2000, 200);
  ProcessOptions options = long_training(folder.path(), folder / "run");
  Process process(heddle_path(), options);
  REQUIRE(process.wait_for_output("data     "));
  process.send_signal(SIGINT);
  const ProcessResult result = process.wait();
  CHECK(result.exit_code == 130);
  // It came either before the folder was made or after.
  if (!file_exists(folder / "run")) CHECK(contains(result.err, "nothing was written"));
}

}  // namespace heddle::test
