// What the program's output does when its reader does not read.
#include "tools/console.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "tests/support/catch.h"
#include "tests/tools/program.h"

namespace heddle::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read = FileHandle(ends[0]);
    write = FileHandle(ends[1]);
  }
  // Until the other end is closed.
  std::string read_all() const {
    std::string text;
    char block[4096];
    for (ssize_t n = 0; (n = ::read(read.get(), block, sizeof block)) > 0;) {
      text.append(block, static_cast<std::size_t>(n));
    }
    return text;
  }
  FileHandle read, write;
};

// More than a pipe holds.
std::string write_much(Console& console) {
  std::string whole;
  for (int i = 0; i < 4000; ++i) {
    const std::string line = "line " + std::to_string(i) + std::string(60, '.');
    console.line(line);
    whole += line + "\n";
  }
  return whole;
}

}  // namespace

TEST_CASE("output that nobody reads yet is kept, and comes whole") {
  Pipe pipe;
  std::string written, seen;
  std::thread reader;
  {
    Console console(pipe.write.get());
    written = write_much(console);
    REQUIRE(written.size() > 200'000);
    reader = std::thread([&] { seen = pipe.read_all(); });
  }
  pipe.write.reset();
  reader.join();
  CHECK(seen == written);
}

TEST_CASE("others that write to the same pipe see no other behaviour of it") {
  Pipe pipe;
  const Console console(pipe.write.get());
  CHECK((::fcntl(pipe.write.get(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("a reader that went away is noticed once") {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  Console console(pipe.write.get());
  console.line("one");
  CHECK(console.error() == 0);
  pipe.read.reset();
  console.line("two");
  CHECK(console.error() == EPIPE);
  std::signal(SIGPIPE, SIG_DFL);
}

TEST_CASE("whoever is in a hurry waits a second for a reader and no more") {
  Pipe pipe;
  const Clock::time_point begin = Clock::now();
  {
    Console console(pipe.write.get());
    {
      const HurryScope hurry(console, [] { return true; });
      write_much(console);
    }
    CHECK(console.error() == 0);
    // The scope is over, and the hurry is not.
    console.flush();
    CHECK(console.error() == ETIMEDOUT);
  }
  CHECK(Clock::now() - begin >= std::chrono::seconds(1));
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
}

}  // namespace heddle::tools

namespace heddle::test {
namespace {

// Whole ones.
std::size_t lines_of(const std::string& path) {
  const std::string text = get_file(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("a training goes on when its reader only pauses, and a signal ends it in order") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 32, 10);
  for (const OutputKind kind : {OutputKind::pipes, OutputKind::terminal}) {
    const std::string run = folder / (kind == OutputKind::pipes ? "pipe" : "terminal");
    ProcessOptions options;
    options.output = kind;
    options.environment = {{"TERM", "dumb"}};
    options.arguments = small_training(folder.path(), run, {"--epochs", "1000000", "--checkpoint-every", "1000000"});
    Process process(heddle_path(), options);
    REQUIRE(process.wait_for_output("epoch 1/"));
    // From here on nothing is read. More than 64 KiB, which a pipe holds.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(90);
    std::size_t epochs = 0;
    while ((epochs = lines_of(run + "/metrics.jsonl")) < 800 && std::chrono::steady_clock::now() < end)
      ::usleep(50'000);
    CHECK(epochs >= 800);
    process.send_signal(SIGTERM);
    const auto end_of_run = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    bool described = false;
    while (!(described = json_file(run + "/run.json").contains("result")) &&
           std::chrono::steady_clock::now() < end_of_run) {
      ::usleep(50'000);
    }
    CHECK(described);
    const ProcessResult result = process.wait();
    CHECK(result.exit_code == 143);
  }
}

}  // namespace heddle::test
