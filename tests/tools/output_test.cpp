// What is seen while a run goes on: a bar on a terminal, plain whole lines everywhere else.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "nccl_comm/gloo_communicator.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

ProcessOptions terminal(std::vector<std::pair<std::string, std::string>> environment, int columns = 80) {
  ProcessOptions options;
  options.environment = {{"TERM", "xterm"}, {"NO_COLOR", ""}};
  for (auto& variable : environment) options.environment.push_back(std::move(variable));
  options.output = OutputKind::terminal;
  options.columns = columns;
  return options;
}

// A terminal turns each line end into "\r\n"; the rest must be free of control characters.
bool is_plain(std::string text) {
  for (std::size_t place; (place = text.find("\r\n")) != std::string::npos;) text.erase(place, 1);
  return text.find('\r') == std::string::npos && text.find('\x1b') == std::string::npos && text.back() == '\n';
}

}  // namespace

TEST_CASE("into a pipe, and for simple terminals, there are plain whole lines") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  int run = 0;
  const auto train = [&](ProcessOptions options) {
    const ProcessResult result =
        heddle(small_training(folder.path(), folder / std::to_string(run++), {"--epochs", "2"}), std::move(options));
    CHECK(result.exit_code == 0);
    CHECK(is_plain(result.out));
    CHECK(contains(result.out, "epoch 2/2"));
    CHECK(contains(result.out, "done     2 epochs"));
  };
  train({});
  train(terminal({{"TERM", "dumb"}}));
  train(terminal({{"NO_COLOR", "1"}}));
}

TEST_CASE("on a terminal there is a bar that fits its width and goes away") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 2000, 200);
  for (const int columns : {40, 100}) {
    const ProcessResult result = heddle(
        small_training(folder.path(), folder / std::to_string(columns), {"--epochs", "3"}), terminal({}, columns));
    REQUIRE(result.exit_code == 0);
    CHECK(contains(result.out, "\repoch 1/3"));
    CHECK(contains(result.out, "loss "));
    std::size_t bars = 0;
    for (std::size_t begin = 0; (begin = result.out.find("\repoch", begin)) != std::string::npos; ++bars) {
      const std::size_t end = result.out.find("\x1b[K", begin);
      REQUIRE(end != std::string::npos);
      CHECK(end - begin - 1 < static_cast<std::size_t>(columns));
      begin = end;
    }
    CHECK(bars >= 1);
    CHECK(contains(result.out, "\r\x1b[Kepoch 1/3"));
  }
}

TEST_CASE("a run goes on when nobody reads its output or it is closed") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  ProcessOptions closed;
  closed.output = OutputKind::closed;
  const ProcessResult result = heddle(small_training(folder.path(), folder / "closed", {"--epochs", "2"}), closed);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(metrics_of(folder / "closed").size() == 2);
  // No file of the run got the number of standard output.
  CHECK_FALSE(contains(get_file(folder / "closed/metrics.jsonl"), "done"));

  ProcessOptions options;
  options.arguments = small_training(folder.path(), folder / "gone", {"--epochs", "6"});
  Process process(heddle_path(), options);
  REQUIRE(process.wait_for_output("run      "));
  process.stop_reading();
  const ProcessResult gone = process.wait();
  CHECK(gone.signal == 0);
  CHECK(gone.exit_code == 0);
  CHECK(gone.err.empty());
  CHECK(metrics_of(folder / "gone").size() == 6);
}

TEST_CASE("a training outlives a full output, and one whose outputs are both closed") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  int run = 0;
  for (const char* redirection : {"> /dev/full", "> /dev/full 2>&1", ">&- 2>&-"}) {
    INFO(redirection);
    const std::string out = folder / std::to_string(run++);
    std::string command = "exec '" + heddle_path() + "'";
    for (const std::string& argument : small_training(folder.path(), out, {"--epochs", "3"})) {
      command += " '" + argument + "'";
    }
    ProcessOptions options;
    options.arguments = {"-c", command + " " + redirection};
    const ProcessResult result = Process("/bin/sh", options).wait();
    CHECK(result.exit_code == 0);
    CHECK(metrics_of(out).size() == 3);
    CHECK(json_file(out + "/run.json")["result"]["finished"] == true);
  }
}

TEST_CASE("into a file lines are seen while the training goes on, and all are whole") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const std::string log = folder / "log";
  std::string command = "exec '" + heddle_path() + "'";
  for (const std::string& argument : small_training(folder.path(), folder / "run", {"--epochs", "100000"})) {
    command += " '" + argument + "'";
  }
  ProcessOptions options;
  options.arguments = {"-c", command + " > '" + log + "' 2>&1"};
  Process process("/bin/sh", options);
  const auto begin = std::chrono::steady_clock::now();
  const auto seen = [&] { return file_exists(log) && contains(get_file(log), "epoch 2/100000"); };
  while (!seen() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(60)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::string text = file_exists(log) ? get_file(log) : "";
    CHECK((text.empty() || is_plain(text)));
  }
  CHECK(seen());
  process.send_signal(SIGINT);
  CHECK(process.wait().exit_code == 130);
  const std::string text = get_file(log);
  CHECK(is_plain(text));
  CHECK(contains(text, "interrupted by SIGINT"));
  // Short epochs have one line each, and a handful before the first.
  const auto lines = std::count(text.begin(), text.end(), '\n');
  CHECK(lines <= static_cast<std::ptrdiff_t>(metrics_of(folder / "run").size()) + 20);
}

TEST_CASE("of several ranks one alone tells how far the training is") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const auto epoch_lines = [](const std::string& text) {
    std::size_t n = 0;
    for (std::size_t at = text.find("\nepoch "); at != std::string::npos; at = text.find("\nepoch ", at + 1)) ++n;
    return n;
  };
  const ProcessResult threads = heddle(small_training(folder.path(), folder / "a", {"--epochs", "3", "--ranks", "2"}));
  REQUIRE(threads.exit_code == 0);
  CHECK(epoch_lines(threads.out) == 3);
  CHECK(threads.err.empty());
  if (!comm::why_no_gloo().empty()) return;
  const std::vector<ProcessResult> ranks =
      heddle_as_two_ranks(small_training(folder.path(), folder / "b", {"--epochs", "3"}), folder.path());
  for (const ProcessResult& rank : ranks) {
    REQUIRE(rank.exit_code == 0);
    CHECK(rank.err.empty());
  }
  CHECK(epoch_lines(ranks[0].out) == 3);
  CHECK(ranks[1].out.empty());
  // Of the files, too, there is one.
  std::size_t event_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "b")) {
    event_files += contains(entry.path().filename().string(), "tfevents") ? 1 : 0;
  }
  CHECK(event_files == 1);
}

TEST_CASE("a full output is reported by commands that have nothing but output") {
  ProcessOptions options;
  options.arguments = {"-c", heddle_path() + " --help > /dev/full"};
  const ProcessResult result = Process("/bin/sh", options).wait();
  CHECK(result.exit_code == 1);
  CHECK(result.err == "heddle: standard output: No space left on device\n");
}

}  // namespace heddle::test
