// `heddle train --seeds`: a set of runs, its numbers, and how it is stopped and continued.
#include <algorithm>
#include <csignal>
#include <filesystem>

#include "engine/core/error.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tools/spread.h"

namespace heddle::test {

TEST_CASE("the spread of numbers is their mean, the deviation of a sample, and the ends") {
  // Deviations of -3, -1, 1 and 3: 20 / 3.
  const tools::Spread spread = tools::spread_of({2, 4, 6, 8});
  CHECK(spread.mean == 5);
  CHECK(spread.deviation == Approx(2.581988897));
  CHECK((spread.min == 2 && spread.max == 8));
  CHECK(tools::spread_of({3}).deviation == 0);
  CHECK_THROWS_AS(tools::spread_of({}), InvalidArgument);
}

TEST_CASE("a set of seeds has the runs that each seed gives by itself, and says their mean and spread") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const std::string set = folder / "set";
  const ProcessResult result =
      heddle(small_training(folder.path(), set, {"--epochs", "2", "--seed", "5", "--seeds", "3"}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  std::vector<double> last;
  for (const char* seed : {"5", "6", "7"}) {
    const std::string run = set + "/seed-" + seed;
    REQUIRE(heddle(small_training(folder.path(), folder / seed, {"--epochs", "2", "--seed", seed})).exit_code == 0);
    CHECK(metrics_of(run) == metrics_of(folder / seed));
    CHECK(weights_of(run) == weights_of(folder / seed));
    last.push_back(tools::Json::parse(metrics_of(run).back())["test_accuracy"].get<double>());
  }
  const tools::Json described = json_file(set + "/seeds.json");
  CHECK(described["seeds"] == tools::Json({5, 6, 7}));
  CHECK(described["result"]["finished"] == tools::Json({5, 6, 7}));
  const double mean = (last[0] + last[1] + last[2]) / 3;
  CHECK(described["result"]["final_test_accuracy"]["mean"].get<double>() == Approx(mean));
  CHECK(described["result"]["best_test_accuracy"]["max"].get<double>() >= *std::max_element(last.begin(), last.end()));
  CHECK(contains(result.out, "seeds    1 of 3: seed 5\n"));
  CHECK(contains(result.out, "final    mean "));
  CHECK(contains(result.out, "done     3 of 3 seeds; folder " + set + "\n"));

  // With more epochs it trains on; a report takes the whole set.
  const ProcessResult more = heddle({"train", "--resume", set, "--epochs", "3"});
  CHECK(more.exit_code == 0);
  for (const char* seed : {"5", "6", "7"}) CHECK(metrics_of(set + "/seed-" + seed).size() == 3);
  CHECK(heddle({"report", set}).exit_code == 0);
  CHECK(contains(get_file(set + "/report.html"), "seed-5, seed-6, seed-7"));
  // Nothing is left to do; the numbers are said again.
  const ProcessResult again = heddle({"train", "--resume", set});
  CHECK(again.exit_code == 0);
  CHECK(contains(again.out, "done     3 of 3 seeds"));
  // A value that the runs refuse does not stay in the set.
  const std::string before = get_file(set + "/seeds.json");
  const ProcessResult fewer = heddle({"train", "--resume", set, "--epochs", "2"});
  CHECK(fewer.exit_code == 2);
  CHECK(contains(fewer.err, "--epochs 2: the run has 3 finished epochs already"));
  CHECK(get_file(set + "/seeds.json") == before);
  CHECK(heddle({"train", "--resume", set}).exit_code == 0);
}

TEST_CASE("a set of seeds has one time limit, and a run that it stops is not finished") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  const std::string set = folder / "set";
  ProcessResult result = heddle(small_training(
      folder.path(), set, {"--epochs", "3", "--evaluate-every", "3", "--seeds", "2", "--time-limit", "0.001"}));
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "the time limit of 0.001 has passed in epoch 1 after step 1"));
  CHECK(contains(result.out, "0 of 2 seeds are finished; continue the set with heddle train --resume " + set));
  CHECK_FALSE(contains(result.out, "done     "));
  CHECK_FALSE(file_exists(set + "/seed-2"));
  CHECK_FALSE(json_file(set + "/seeds.json").contains("result"));
  result = heddle({"train", "--resume", set, "--time-limit", "0"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "done     2 of 2 seeds"));
  CHECK(json_file(set + "/seeds.json")["result"]["finished"] == tools::Json({1, 2}));
}

TEST_CASE("a signal stops a set, which goes on where it stopped") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const std::string set = folder / "set";
  ProcessOptions options;
  options.arguments = small_training(folder.path(), set, {"--epochs", "30", "--seeds", "3"});
  Process process(heddle_path(), options);
  REQUIRE(process.wait_for_output("seeds    2 of 3"));
  REQUIRE(process.wait_for_output("epoch 1/30"));
  process.send_signal(SIGTERM);
  const ProcessResult stopped = process.wait();
  CHECK(stopped.exit_code == 143);
  CHECK(contains(stopped.out, "1 of 3 seeds are finished; continue the set with heddle train --resume " + set));
  CHECK_FALSE(file_exists(set + "/seed-3"));
  CHECK_FALSE(json_file(set + "/seeds.json").contains("result"));
  const ProcessResult resumed = heddle({"train", "--resume", set});
  CHECK(resumed.exit_code == 0);
  CHECK(contains(resumed.out, "done     3 of 3 seeds"));
  for (const char* seed : {"1", "2", "3"}) CHECK(metrics_of(set + "/seed-" + seed).size() == 30);
}

TEST_CASE("a seed whose loss is not finite is told, and the others go on") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  const std::string set = folder / "set";
  const ProcessResult result =
      heddle(small_training(folder.path(), set, {"--epochs", "20", "--lr", "1e30", "--seeds", "2"}));
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "heddle: seed 1: "));
  CHECK(contains(result.err, "heddle: seed 2: "));
}

TEST_CASE("flags that make no sense with a set of seeds are refused, and nothing is left behind") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  const auto refused = [&](std::vector<std::string> arguments, const std::string& reason) {
    const ProcessResult result = heddle(std::move(arguments));
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, reason));
  };
  for (const char* count : {"1", "0", "-1", "x", "1001", "2.5"}) {
    refused(small_training(folder.path(), folder / "set", {"--seeds", count}),
            "expected a whole number from 2 to 1000");
  }
  refused(small_training(folder.path(), folder / "set", {"--seeds", "2", "--seed", "9007199254740992"}),
          "seeds end at");
  // Found out by the first run only.
  CHECK(heddle({"train", "--seeds", "2", "--dataset", "idx", "--data-dir", folder / "none", "--out", folder / "set"})
            .exit_code == 1);
  CHECK_FALSE(file_exists(folder / "set"));
  ProcessOptions launched;
  launched.environment = {{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  const ProcessResult rank = heddle(small_training(folder.path(), folder / "set", {"--seeds", "2"}), launched);
  CHECK(rank.exit_code == 2);
  CHECK(contains(rank.err, "does not go with"));

  REQUIRE(heddle(small_training(folder.path(), folder / "set", {"--epochs", "1", "--seeds", "2"})).exit_code == 0);
  refused({"train", "--resume", folder / "set", "--seeds", "3"}, "--seeds does not go with --resume");
  refused({"train", "--resume", folder / "set", "--seed", "3"}, "--seed does not go with --resume");
  refused({"train", "--resume", folder / "set", "--lr", "0.5"}, "these flags contradict the run");
  refused({"train", "--resume", folder / "set", "--out", folder / "b"}, "--out does not go with --resume");
  refused(small_training(folder.path(), folder / "set", {}), "holds a run already (seeds.json)");
  refused(small_training(folder.path(), folder / "set", {"--seeds", "2"}), "holds a run already (seeds.json)");
  put_file(folder / "set/seeds.json", "{\"seeds\": []}");
  refused({"train", "--resume", folder / "set"}, "was not written by heddle train --seeds");
}

}  // namespace heddle::test
