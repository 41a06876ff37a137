// What users of several ranks rely on, for ranks that are threads and for ranks that are processes: few images and odd
// numbers of them, signals to any rank at any moment.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "nccl_comm/gloo_communicator.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

constexpr int kRanks = 3;

bool has_processes() { return comm::why_no_gloo().empty(); }

// A training of three ranks.
class Training {
 public:
  Training(bool processes, const std::string& folder, const std::vector<std::string>& more)
      : run_(folder + (processes ? "/run-processes" : "/run-threads")) {
    std::vector<std::string> arguments = small_training(folder, run_, more);
    if (!processes) arguments.insert(arguments.end(), {"--ranks", std::to_string(kRanks)});
    for (int rank = 0; rank < (processes ? kRanks : 1); ++rank) {
      ProcessOptions options;
      options.arguments = arguments;
      if (processes) {
        options.arguments.insert(options.arguments.end(), {"--store", "file:" + folder + "/meet"});
        options.environment = {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(kRanks)}};
      }
      processes_.push_back(std::make_unique<Process>(heddle_path(), options));
    }
  }
  const std::string& run() const { return run_; }
  std::size_t size() const { return processes_.size(); }
  Process& operator[](std::size_t i) { return *processes_[i]; }
  // Exit codes, when all have ended; what they printed is in text().
  std::vector<int> wait() {
    std::vector<int> codes;
    for (const auto& process : processes_) {
      const ProcessResult result = process->wait();
      codes.push_back(result.exit_code);
      seconds_ = std::max(seconds_, result.seconds);
      text_ += result.out + result.err;
    }
    return codes;
  }
  const std::string& text() const { return text_; }
  double seconds() const { return seconds_; }

 private:
  std::string run_, text_;
  double seconds_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
};

std::vector<int> all(const Training& training, int code) { return std::vector<int>(training.size(), code); }

}  // namespace

TEST_CASE("shares of different size, and ranks without any image, end by themselves with all images used") {
  struct Row {
    int images;
    const char* batch_size;
  };
  // 48 images of three ranks are 16 of each: 17, 16, 16 and 0 are left in turns. Two images: one rank has none.
  for (const Row& row : {Row{97, "48"}, Row{2, "48"}, Row{2, "1"}}) {
    const TempFolder folder;
    write_small_dataset(folder.path(), row.images, 5);
    // Two images have two classes, and so must those of the test.
    for (const char* const part : {"-images-idx3-ubyte", "-labels-idx1-ubyte"}) {
      put_file(folder / (std::string("t10k") + part), get_file(folder / (std::string("train") + part)));
    }
    std::vector<std::string> weights;
    for (const bool processes : {false, true}) {
      if (processes && !has_processes()) continue;
      CAPTURE(row.images, row.batch_size, processes);
      // The ranks compare a hash of weights and state after every step and every epoch, and stop if it differs.
      Training training(processes, folder.path(),
                        {"--epochs", "3", "--batch-size", row.batch_size, "--check-replicas", "1"});
      const std::vector<int> codes = training.wait();
      INFO(training.text());
      CHECK(codes == all(training, 0));
      CHECK(training.seconds() < 60);
      const std::vector<std::string> epochs = metrics_of(training.run());
      CHECK(epochs.size() == 3);
      for (const std::string& epoch : epochs) CHECK(tools::Json::parse(epoch)["train_samples"] == row.images);
      weights.push_back(json_file(training.run() + "/run.json")["result"]["weights_crc32"].get<std::string>());
      // What is logged is what the checkpoint is worth.
      const ProcessResult eval = heddle({"eval", "--json", "--checkpoint", training.run()});
      REQUIRE(eval.exit_code == 0);
      CHECK(tools::Json::parse(eval.out)["accuracy"] == tools::Json::parse(epochs.back())["test_accuracy"]);
    }
    if (weights.size() == 2) CHECK(weights[0] == weights[1]);
  }
}

TEST_CASE("a signal to any of three ranks at any moment saves, and the run continues") {
  const TempFolder folder;
  // A step takes some milliseconds, an evaluation as long as an epoch.
  write_small_dataset(folder.path(), 300, 300);
  int turn = 0;
  for (const bool processes : {false, true}) {
    if (processes && !has_processes()) continue;
    for (const int delay_ms : {0, 7, 31, 64, 110}) {
      const TempFolder place;
      for (const char* const name :
           {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
        put_file(place / name, get_file(folder / name));
      }
      const int number = ++turn % 2 == 0 ? SIGINT : SIGTERM;
      Training training(processes, place.path(), {"--epochs", "100000", "--batch-size", "64", "--comm-timeout", "30"});
      REQUIRE(training[0].wait_for_output("run      "));
      ::usleep(static_cast<useconds_t>(delay_ms * 1000));
      const std::size_t rank = static_cast<std::size_t>(turn) % training.size();
      training[rank].send_signal(number);
      const auto begin = std::chrono::steady_clock::now();
      const std::vector<int> codes = training.wait();
      CAPTURE(processes, delay_ms, rank, training.text());
      CHECK(codes == all(training, 128 + number));
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
      CHECK(contains(training.text(), number == SIGINT ? "interrupted by SIGINT" : "interrupted by SIGTERM"));
      CHECK(json_file(training.run() + "/run.json")["result"]["finished"] == false);
      const std::string more = std::to_string(metrics_of(training.run()).size() + 1);
      const ProcessResult rest = heddle({"train", "--resume", training.run(), "--epochs", more});
      INFO(rest.err);
      CHECK(rest.exit_code == 0);
    }
  }
}

TEST_CASE("a second signal ends a rank at once, although another one is frozen") {
  if (!has_processes()) return;
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  Training training(true, folder.path(), {"--epochs", "100000", "--comm-timeout", "60"});
  REQUIRE(training[0].wait_for_output("epoch 1/"));
  training[1].send_signal(SIGSTOP);
  for (const std::size_t rank : {0, 2}) training[rank].send_signal(SIGINT);
  // Sooner it would be an echo of the first.
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  for (const std::size_t rank : {0, 2}) training[rank].send_signal(SIGINT);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(training[0].wait().exit_code == 130);
  CHECK(training[2].wait().exit_code == 130);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  training[1].send_signal(SIGCONT);
  CHECK(training[1].wait().exit_code == 1);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  CHECK(heddle({"eval", "--checkpoint", training.run()}).exit_code == 0);
}

}  // namespace heddle::test
