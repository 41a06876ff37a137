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

TEST_CASE("help is asked for a command, too, and what it cannot use is refused") {
  CHECK(heddle({"help", "train"}).out == heddle({"train", "--help"}).out);
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"help", "nope"},
                                                    {"help", "train", "nope"},
                                                    {"--help", "nope"},
                                                    {"--version", "nope"}}) {
    const ProcessResult result = heddle(arguments);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "takes no argument 'nope'"));
    CHECK(result.out.empty());
  }
}

TEST_CASE("control characters of a name are shown and not obeyed") {
  const ProcessResult result = heddle({"\x1b[31mtrain\x7f"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "unknown command '\\x1b[31mtrain\\x7f'"));
  // U+009B is the same as "ESC [" to a terminal; U+00E9 is a letter.
  const ProcessResult second =
      heddle({"\xc2\x9b"
              "31mtrain\xc3\xa9"});
  CHECK(contains(second.err, "unknown command '\\xc2\\x9b31mtrain\xc3\xa9'"));
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

TEST_CASE("flags without a value, with an empty one, or given twice get one sentence") {
  const auto error = [](std::vector<std::string> arguments) {
    const ProcessResult result = heddle(std::move(arguments));
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    return result.err.substr(0, result.err.find('\n'));
  };
  CHECK(error({"train", "--epochs"}) == "heddle: --epochs needs a value (N): epochs in all, also when resumed");
  CHECK(error({"eval", "--checkpoint"}) ==
        "heddle: --checkpoint needs a value (PATH): folder of a run, or a safetensors file");
  CHECK(error({"train", "--epochs", "3", "--lr", "1", "--epochs=5"}) ==
        "heddle: --epochs is given 2 times (3, 5); give it once");
  CHECK(error({"train", "--nesterov", "--no-nesterov"}) ==
        "heddle: --nesterov or --no-nesterov is given 2 times; give one of them once");
  CHECK(error({"train", "--nesterov=maybe"}) == "heddle: --nesterov is 'maybe'; expected true or false");
  CHECK(error({"train", "--no-nesterov=true"}) ==
        "heddle: --no-nesterov takes no value; write --nesterov=true or --nesterov=false");
  CHECK(error({"train", "--out", ""}) == "heddle: --out is empty; expected DIR");
  CHECK(error({"train", "--data-dir="}) == "heddle: --data-dir is empty; expected DIR");
  CHECK(error({"predict", "--checkpoint", "x", ""}) == "heddle: an argument of heddle predict is empty");
  CHECK(error({"train", "--seed", "9007199254740993"}) ==
        "heddle: --seed is '9007199254740993'; expected a whole number from 0 to 9007199254740992");
  CHECK(error({"train", "--seed", "99999999999999999999"}) ==
        "heddle: --seed is '99999999999999999999'; expected a whole number from 0 to 9007199254740992");
}

TEST_CASE("what this build does not offer is refused, never ignored, and leaves no trace") {
  const TempFolder folder;
  const auto refused = [&](std::vector<std::string> more, const std::string& part) {
    std::vector<std::string> arguments = {"train", "--out", folder / "run"};
    if (more.front() != "--dataset") arguments.insert(arguments.end(), {"--dataset", "synthetic"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = heddle(arguments);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, part));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(folder.num_files() == 0);
  };
  refused({"--ranks", "0"}, "--ranks");
  refused({"--sync-bn"}, "the model lenet has no batch norm");
  refused({"--precision", "bf16"}, "fp32 and tf32 only");
  refused({"--precision", "tf32", "--device", "cpu"}, "the CPU computes in fp32");
  refused({"--label-smoothing", "1"}, "below 1");
  refused({"--momentum", "1"}, "below 1");
  refused({"--dataset", "folder"}, "needs --data-dir");
  refused({"--model", "resnet34"}, "--model is 'resnet34'");
  refused({"--optimizer", "adam", "--momentum", "0.9"}, "no effect");
  refused({"--data-dir", "/tmp"}, "no effect");
}

TEST_CASE("the doctor tries to write where it says that one can") {
  // Root passes every check of permissions there, and still nobody can make a file.
  const ProcessResult result = heddle({"doctor"}, {.environment = {{"XDG_CACHE_HOME", "/proc/1"}}});
  CHECK(contains(result.out, "/proc/1/heddle/fashion-mnist (/proc/1: cannot be written"));
  CHECK(contains(result.out, "heddle data fetch needs a folder that can be written"));
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
