// `heddle train` started by a launcher as several processes: they train what the ranks of one process train, stop
// together, and when one of them is lost the others say so and end.
#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <thread>

#include "engine/checkpoint/safetensors.h"
#include "nccl_comm/gloo_communicator.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

Environment rank_environment(int rank, int world_size) {
  return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(world_size)}};
}

// The processes of one training, which meet in a folder unless `meet` names another place.
class Ranks {
 public:
  Ranks(std::vector<std::string> arguments, int world_size, const std::string& folder, const Environment& meet = {}) {
    if (meet.empty()) arguments.insert(arguments.end(), {"--store", "file:" + folder + "/meet"});
    for (int rank = 0; rank < world_size; ++rank) {
      ProcessOptions options;
      options.arguments = arguments;
      options.environment = rank_environment(rank, world_size);
      options.environment.insert(options.environment.end(), meet.begin(), meet.end());
      processes_.push_back(std::make_unique<Process>(heddle_path(), options));
    }
  }
  Process& operator[](std::size_t rank) { return *processes_[rank]; }
  std::vector<ProcessResult> wait() {
    std::vector<ProcessResult> results;
    for (const auto& process : processes_) results.push_back(process->wait());
    return results;
  }

 private:
  std::vector<std::unique_ptr<Process>> processes_;
};

// Of the best checkpoint.
std::vector<float> values_of(const std::string& run) {
  const auto file = SafetensorsFile::open(run + "/checkpoints/best.safetensors");
  std::vector<float> all;
  for (const auto& entry : file.entries()) {
    if (dtype_for(entry.type) != DType::f32) continue;
    std::vector<float> values(static_cast<std::size_t>(entry.numel()));
    file.read_f32(entry, values.data());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

// A training that lasts until it is ended.
std::vector<std::string> endless_training(const std::string& folder, const std::string& timeout) {
  return small_training(folder, folder + "/run", {"--epochs", "100000", "--comm-timeout", timeout});
}

bool can_run() { return comm::why_no_gloo().empty(); }

}  // namespace

TEST_CASE("a build without Gloo says what is missing to ranks in processes") {
  if (can_run()) return;
  const ProcessResult result = heddle({"train", "--dataset", "synthetic"}, {.environment = rank_environment(0, 2)});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "libgloo-dev"));
}

TEST_CASE("two processes give the weights of two threads bit for bit, and those of one rank") {
  if (!can_run()) return;
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 101);
  const auto arguments = [&](const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> all{"--epochs", "2", "--batch-size", "16", "--momentum", "0.9"};
    all.insert(all.end(), more.begin(), more.end());
    return small_training(folder.path(), folder / run, all);
  };
  REQUIRE(heddle(arguments("one", {})).exit_code == 0);
  REQUIRE(heddle(arguments("threads", {"--ranks", "2"})).exit_code == 0);
  Ranks ranks(arguments("processes", {}), 2, folder.path(),
              {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(free_port())}});
  const std::vector<ProcessResult> results = ranks.wait();
  for (const ProcessResult& result : results) {
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(result.err.empty());
  }
  CHECK(results[1].out.empty());
  CHECK(weights_of(folder / "processes") == weights_of(folder / "threads"));
  CHECK(metrics_of(folder / "processes") == metrics_of(folder / "threads"));
  const std::vector<float> one = values_of(folder / "one");
  REQUIRE(one.size() > 40'000);
  CHECK(relative_difference(values_of(folder / "processes"), one) < 1e-5);
}

TEST_CASE("processes and threads, as many as there are, give a reproducible run the same bits") {
  if (!can_run()) return;
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 101);
  const auto arguments = [&](const std::string& run, const std::string& threads) {
    return small_training(folder.path(), folder / run,
                          {"--reproducible", "--epochs", "2", "--batch-size", "16", "--momentum", "0.9", "--augment",
                           "crop-flip", "--threads", threads});
  };
  REQUIRE(heddle(arguments("one", "3")).exit_code == 0);
  for (const int world_size : {2, 3}) {
    const std::string run = "processes-" + std::to_string(world_size);
    Ranks ranks(arguments(run, "2"), world_size, folder.path());
    for (const ProcessResult& result : ranks.wait()) {
      INFO(result.out << result.err);
      REQUIRE(result.exit_code == 0);
    }
    CHECK(weights_of(folder / run) == weights_of(folder / "one"));
    CHECK(metrics_of(folder / run) == metrics_of(folder / "one"));
  }
}

TEST_CASE("a signal to any of the processes stops all behind the same step, and the run continues exactly") {
  if (!can_run()) return;
  const TempFolder folder;
  write_small_dataset(folder.path(), 400, 100);
  const auto arguments = [&](const std::string& run, const std::string& epochs) {
    return small_training(folder.path(), folder / run, {"--epochs", epochs, "--momentum", "0.9"});
  };
  // So many epochs that the signal cannot come too late.
  Ranks ranks(arguments("parts", "100000"), 2, folder.path());
  REQUIRE(ranks[0].wait_for_output("epoch 1/"));
  // Launchers send it more than once.
  for (const std::size_t rank : {1, 0, 0, 1}) ranks[rank].send_signal(SIGTERM);
  for (const ProcessResult& result : ranks.wait()) {
    INFO(result.out << result.err);
    CHECK(result.exit_code == 143);
    CHECK(result.err.empty());
  }
  REQUIRE(json_file(folder / "parts/run.json").contains("result"));
  CHECK(json_file(folder / "parts/run.json")["result"]["finished"] == false);
  const std::string epochs = std::to_string(metrics_of(folder / "parts").size() + 2);
  Ranks rest({"train", "--resume", folder / "parts", "--epochs", epochs}, 2, folder.path());
  for (const ProcessResult& result : rest.wait()) {
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
  }
  std::vector<std::string> whole = arguments("whole", epochs);
  whole.insert(whole.end(), {"--ranks", "2"});
  REQUIRE(heddle(whole).exit_code == 0);
  CHECK(weights_of(folder / "parts") == weights_of(folder / "whole"));
}

TEST_CASE("a process that is killed is named by the others, which end, and the last checkpoint is whole") {
  if (!can_run()) return;
  for (const std::size_t lost : {1, 0}) {
    const TempFolder folder;
    write_small_dataset(folder.path(), 97, 20);
    Ranks ranks(endless_training(folder.path(), "30"), 3, folder.path());
    REQUIRE(ranks[0].wait_for_output("epoch 2/"));
    ranks[lost].send_signal(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<ProcessResult> results = ranks.wait();
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(90));
    for (std::size_t r = 0; r < results.size(); ++r) {
      if (r == lost) continue;
      INFO(results[r].out << results[r].err);
      CHECK(results[r].exit_code == 1);
      CHECK(contains(results[r].err, "rank " + std::to_string(lost) + " of 3"));
    }
    const ProcessResult check = heddle({"eval", "--checkpoint", folder / "run"});
    INFO(check.out << check.err);
    CHECK(check.exit_code == 0);
  }
}

TEST_CASE("a process that is frozen is named when the time is over") {
  if (!can_run()) return;
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  // The time counts for joining, too: long enough for processes that start slowly.
  Ranks ranks(endless_training(folder.path(), "10"), 2, folder.path());
  REQUIRE(ranks[0].wait_for_output("epoch 2/"));
  ranks[1].send_signal(SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult first = ranks[0].wait();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  INFO(first.out << first.err);
  CHECK(first.exit_code == 1);
  CHECK(contains(first.err, "rank 1 of 2 did not"));
  CHECK(contains(first.err, "within 10 s"));
  CHECK(heddle({"eval", "--checkpoint", folder / "run"}).exit_code == 0);
  // It finds out when it goes on.
  ranks[1].send_signal(SIGCONT);
  CHECK(ranks[1].wait().exit_code == 1);
}

TEST_CASE("what fails on one process is told to the others, and a process that does not come is named") {
  if (!can_run()) return;
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  {
    ProcessOptions good, bad;
    good.arguments =
        small_training(folder.path(), folder / "run", {"--epochs", "1", "--store", "file:" + (folder / "meet")});
    bad.arguments =
        small_training(folder / "elsewhere", folder / "run", {"--epochs", "1", "--store", "file:" + (folder / "meet")});
    good.environment = rank_environment(0, 2);
    bad.environment = rank_environment(1, 2);
    Process first(heddle_path(), good), second(heddle_path(), bad);
    const ProcessResult first_result = first.wait(), second_result = second.wait();
    INFO(first_result.err << second_result.err);
    CHECK(first_result.exit_code == 1);
    CHECK(contains(first_result.err, "rank 1 of 2 has failed"));
    CHECK(contains(first_result.err, "elsewhere"));
    CHECK(second_result.exit_code != 0);
    CHECK(contains(second_result.err, "[rank 1]"));
  }
  ProcessOptions alone;
  alone.environment = rank_environment(0, 2);
  const ProcessResult result = heddle(
      small_training(folder.path(), folder / "alone", {"--comm-timeout", "0.5", "--store", "file:" + (folder / "m")}),
      alone);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "rank 1 of 2 did not come"));
  CHECK(!file_exists(folder / "alone"));
}

TEST_CASE("ranks that are told other settings or have other data say both sides, and do not train") {
  if (!can_run()) return;
  const TempFolder folder, fewer;
  write_small_dataset(folder.path(), 97, 20);
  write_small_dataset(fewer.path(), 96, 20);
  const auto refused = [&](const std::string& data, const std::vector<std::string>& more, const std::string& first,
                           const std::string& other) {
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ProcessOptions options;
      options.arguments = small_training(rank == 0 ? folder.path() : data, folder / "run",
                                         {"--epochs", "1", "--store", "file:" + (folder / "meet")});
      if (rank == 1) options.arguments.insert(options.arguments.end(), more.begin(), more.end());
      options.environment = rank_environment(rank, 2);
      ranks.push_back(std::make_unique<Process>(heddle_path(), options));
    }
    for (const auto& rank : ranks) {
      const ProcessResult result = rank->wait();
      INFO(result.err);
      CHECK(result.exit_code == 1);
      CHECK(contains(result.err, "the ranks disagree: rank 0 has " + first));
      CHECK(contains(result.err, ", rank 1 has " + other));
    }
    CHECK(!file_exists(folder / "run"));
  };
  refused(folder.path(), {"--seed", "2"}, "--seed 1", "--seed 2");
  refused(folder.path(), {"--momentum", "0.9"}, "--momentum 0", "--momentum 0.9");
  refused(fewer.path(), {}, "data train-images-idx3-ubyte with 97 items", "data train-images-idx3-ubyte with 96");
}

TEST_CASE("a signal ends the wait for ranks that do not come") {
  if (!can_run()) return;
  const TempFolder folder;
  const Environment tcp = {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(free_port())}};
  for (const int rank : {0, 1}) {
    for (const bool by_tcp : {false, true}) {
      ProcessOptions options;
      options.arguments = {"train", "--dataset", "synthetic", "--comm-timeout", "60", "--out", folder / "run"};
      if (!by_tcp) options.arguments.insert(options.arguments.end(), {"--store", "file:" + (folder / "meet")});
      options.environment = rank_environment(rank, 2);
      if (by_tcp) options.environment.insert(options.environment.end(), tcp.begin(), tcp.end());
      Process process(heddle_path(), options);
      REQUIRE(process.wait_for_handler(SIGINT));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until it waits, most often
      process.send_signal(SIGINT);
      const ProcessResult result = process.wait();
      INFO(rank << " " << by_tcp << result.err);
      CHECK(result.seconds < 20);
      CHECK(result.exit_code == 130);
      CHECK(contains(result.err, "interrupted by SIGINT while it waited for the other ranks; nothing was written"));
      CHECK(!file_exists(folder / "run"));
    }
  }
}

TEST_CASE("launchers and flags that contradict each other are wrong usage") {
  if (!can_run()) return;
  const auto refused = [](const Environment& environment, const std::vector<std::string>& more,
                          const std::string& reason) {
    std::vector<std::string> arguments{"train", "--dataset", "synthetic"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ProcessOptions options;
    options.environment = environment;
    const ProcessResult result = heddle(arguments, options);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, reason));
  };
  refused(rank_environment(0, 2), {"--ranks", "3"}, "--ranks 3 does not go with torchrun, which has started 2 ranks");
  refused(rank_environment(5, 2), {}, "RANK is 5, but WORLD_SIZE is 2");
  refused({{"RANK", "0"}}, {}, "WORLD_SIZE is not");
  refused(rank_environment(0, 2), {}, "MASTER_ADDR");
  refused(rank_environment(0, 2), {"--store", "somewhere"}, "--store is 'somewhere'");
  refused(rank_environment(0, 2), {"--store", "tcp:host:0"}, "--store is 'tcp:host:0'");
  refused(rank_environment(0, 2), {"--store", "file:x", "--device", "cuda:0,1,2"}, "names 3 GPUs");
  refused(rank_environment(0, 2), {"--store", "file:x", "--device", "cuda:98,99"}, "--device cuda:98,99: ");
  refused({}, {"--store", "file:x"}, "no launcher has started this one");
}

}  // namespace heddle::test
