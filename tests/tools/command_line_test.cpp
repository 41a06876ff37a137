// What the program says to wrong and to right arguments.
#include <sys/stat.h>

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/tools/program.h"
#include "tools/command.h"

namespace heddle::test {

TEST_CASE("without arguments the program prints its help and exits with 2") {
  const ProcessResult result = heddle({});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "Usage: heddle COMMAND"));
  CHECK(result.out.empty());
}

TEST_CASE("help and version are answered, with an example for each command") {
  CHECK(heddle({"--version"}).out == "heddle 0.1.0\n");
  const ProcessResult help = heddle({"--help"});
  CHECK(help.exit_code == 0);
  for (const tools::Command& command : tools::command_list()) {
    INFO(command.name);
    CHECK(contains(help.out, command.name));
    const ProcessResult own = heddle({command.name, "--help"});
    CHECK(own.exit_code == 0);
    CHECK(contains(own.out, "Example:\n  heddle " + std::string(command.name)));
    CHECK(own.err.empty());
  }
}

TEST_CASE("the program starts within a tenth of a second") {
  double best = 1e9;
  for (int i = 0; i < 10; ++i) best = std::min(best, heddle({"--help"}).seconds);
  if (!kInstrumented) CHECK(best < 0.1);
}

TEST_CASE("unknown names are refused with the nearest known one") {
  const auto error = [](std::vector<std::string> arguments) {
    const ProcessResult result = heddle(std::move(arguments));
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  CHECK(contains(error({"tarin"}), "did you mean train?"));
  CHECK(contains(error({"train", "--epohcs", "3"}), "unknown flag --epohcs; did you mean --epochs?"));
  CHECK(contains(error({"train", "--batch", "3"}), "did you mean --batch-size?"));
  CHECK(contains(error({"train", "--model", "lenett"}), "did you mean lenet?"));
  CHECK(contains(error({"train", "--preset", "sed"}), "did you mean seed?"));
  CHECK(contains(error({"train", "--device", "gpu"}), "auto, cpu or cuda"));
  CHECK(contains(error({"train", "lenet"}), "takes no argument 'lenet'"));
  CHECK(contains(error({"train", "--epochs"}), "--epochs"));
  CHECK(contains(error({"train", "--lr", "--momentum"}), "--lr is '--momentum'"));
  CHECK(contains(error({"data"}), "fetch, verify, info"));
  CHECK(contains(error({"data", "verfy"}), "did you mean verify?"));
  CHECK(contains(error({"eval"}), "--checkpoint"));
  CHECK(contains(error({"predict", "--checkpoint", "x"}), "image"));
  CHECK(contains(error({"doctor", "--fix"}), "unknown flag --fix"));
}

TEST_CASE("what this build does not offer is refused, never ignored, and leaves no trace") {
  const TempFolder folder;
  const auto refused = [&](std::vector<std::string> more, const std::string& part) {
    std::vector<std::string> arguments = {"train", "--dataset", "synthetic", "--out", folder / "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = heddle(arguments);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, part));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(folder.num_files() == 0);
  };
  refused({"--ranks", "2"}, "--ranks 2");
  refused({"--sync-bn"}, "--sync-bn");
  refused({"--precision", "bf16"}, "fp32 and tf32 only");
  refused({"--dataset", "folder"}, "not offered");
  refused({"--model", "resnet18"}, "--model is 'resnet18'");
  refused({"--optimizer", "adam", "--momentum", "0.9"}, "no effect");
  refused({"--data-dir", "/tmp"}, "no effect");
}

TEST_CASE("the doctor reports on machine, build and data") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 10, 10);
  const ProcessResult bad = heddle({"doctor"}, {.environment = {{"HEDDLE_DATA", folder.path()}}});
  CHECK(bad.exit_code == 1);
  CHECK(contains(bad.out, "problem: " + (folder / "train-images-idx3-ubyte")));
  for (const char* part : {"oneDNN", "threads", "memory", "nvcc", "zlib", "cache folder", "lenet-d2l"}) {
    INFO(part);
    CHECK(contains(bad.out, part));
  }
}

}  // namespace heddle::test
