// Case C14: saving never destroys, whatever kills the process.
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "engine/checkpoint/safetensors.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::test;

namespace {

constexpr std::int64_t kNumel = 50000;

// A checkpoint whose every number is its version.
void save(const std::string& path, int version) {
  const std::vector<float> weights(kNumel, static_cast<float>(version));
  const TensorToWrite tensor{"w", SafetensorsType::f32, {kNumel}, weights.data()};
  write_safetensors(path, {&tensor, 1}, {{"version", std::to_string(version)}});
}

// The version of a checkpoint, after checking that it is whole. Throws if it is not.
int load(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const int version = std::stoi(file.metadata().at("version"));
  std::vector<float> weights(kNumel);
  file.read(*file.find("w"), weights.data());
  for (const float w : weights) {
    if (w != static_cast<float>(version)) throw Error("mixed checkpoint");
  }
  return version;
}

}  // namespace

TEST_CASE("fifty kills while saving leave a whole checkpoint and no leftovers") {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  save(path, 0);
  int version = 0;
  int leftovers = 0;
  std::srand(7);
  for (int round = 0; round < 50; ++round) {
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      try {
        remove_stale_temp_files(folder.path());
        for (int v = version + 1;; ++v) {
          save(path, v);
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      } catch (...) {
      }
      ::_exit(1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + std::rand() % 15000));
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    const int loaded = load(path);
    CHECK(loaded >= version);
    version = loaded;
    // The checkpoint and what the one process before left.
    CHECK(folder.num_files() <= 2);
    leftovers += folder.num_files() == 2;
  }
  CHECK(version > 0);
  INFO(leftovers << " of 50 kills came during a write");
  remove_stale_temp_files(folder.path());
  CHECK(folder.num_files() == 1);
}

TEST_CASE("a checkpoint that does not fit leaves the older one intact") {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  save(path, 3);
  const ChildResult result = run_in_child([&] {
    rlimit limit{100000, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    save(path, 4);
    return std::string("saved");
  });
  CHECK(result.ended_well());
  CHECK(result.text == "exception: " + path + ": cannot be written at byte 100000: File too large");
  CHECK(load(path) == 3);
  CHECK(folder.num_files() == 1);
}

TEST_CASE("a checkpoint to a device or a folder is refused") {
  const TempFolder folder;
  CHECK(message_of<IoError>([] { save("/dev/full", 1); }).rfind("/dev/full: cannot be written: it is a device", 0) ==
        0);
  CHECK(message_of<IoError>([&] {
          save(folder.path(), 1);
        }).rfind(folder.path() + ": cannot be written: it is a dir", 0) == 0);
}
