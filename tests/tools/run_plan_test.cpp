// The habits of a long run: when it evaluates, saves and ends, and that none of it changes what is trained.
#include "tools/run_plan.h"

#include <algorithm>
#include <filesystem>

#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tools/duration.h"

namespace heddle::test {
namespace {

using Strings = std::vector<std::string>;

// The column of each line; null where there was no evaluation.
std::vector<tools::Json> column(const std::string& run, const char* name) {
  std::vector<tools::Json> values;
  for (const std::string& line : metrics_of(run)) values.push_back(tools::Json::parse(line).at(name));
  return values;
}

Strings checkpoints_of(const std::string& run) {
  Strings names;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("a length of time is read as people write it, and anything else is refused") {
  using tools::parse_duration;
  CHECK(parse_duration("0") == 0);
  CHECK(parse_duration("90") == 90);
  CHECK(parse_duration("1.5") == 1.5);
  CHECK(parse_duration("45s") == 45);
  CHECK(parse_duration("1h30m") == 5400);
  CHECK(parse_duration("2d1s") == 172801);
  CHECK(parse_duration("1000d") == 86400000);
  for (const char* const text : {"", "h", "1h1h", "1m1h", "1h30", "-1", "+1", "1 h", "inf", "nan", "1e3", "0x10",
                                 "1001d", "10000000000000000000000000d", "1h30m ", "1hm"}) {
    INFO(text);
    CHECK_FALSE(parse_duration(text).has_value());
  }
  CHECK(tools::duration_text(5400) == "1h30m");
  CHECK(tools::duration_text(172801) == "2d1s");
  CHECK(tools::duration_text(0.2) == "0s");
}

TEST_CASE("a plan evaluates every N epochs and after the last, and ends when nothing gets better") {
  tools::Settings settings;
  settings.epochs = 10;
  settings.evaluate_every = 3;
  std::vector<int> evaluated;
  for (int epoch = 1; epoch <= 10; ++epoch) {
    if (tools::evaluates_after(settings, epoch)) evaluated.push_back(epoch);
  }
  CHECK(evaluated == std::vector<int>{3, 6, 9, 10});

  settings.early_stop = 4;
  checkpoint::TrainingState state;
  state.best_metric = 0.5;
  state.best_epoch = 3;
  const auto finished = [&](std::int64_t epoch) {
    state.epoch = epoch;
    return tools::is_finished(settings, state);
  };
  CHECK_FALSE(finished(6));
  CHECK_FALSE(finished(7));  // four epochs, but what the last one brought is not known
  CHECK(finished(9));
  settings.early_stop = 0;
  CHECK_FALSE(finished(9));
  CHECK(finished(10));
  settings.checkpoint_every = 100;
  CHECK(tools::saves_after(settings, state));
}

TEST_CASE("epochs without evaluation have null in their test columns, and train the same") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 50);
  REQUIRE(heddle(small_training(folder.path(), folder / "all", {"--epochs", "5"})).exit_code == 0);
  const ProcessResult result =
      heddle(small_training(folder.path(), folder / "some", {"--epochs", "5", "--evaluate-every", "2"}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(weights_of(folder / "some") == weights_of(folder / "all"));
  CHECK(column(folder / "some", "train_loss") == column(folder / "all", "train_loss"));
  const std::vector<tools::Json> all = column(folder / "all", "test_accuracy");
  const std::vector<tools::Json> some = column(folder / "some", "test_accuracy");
  const std::vector<tools::Json> losses = column(folder / "some", "test_loss");
  REQUIRE(some.size() == 5);
  for (const std::size_t epoch : {0u, 2u}) {
    CHECK(some[epoch].is_null());
    CHECK(losses[epoch].is_null());
  }
  for (const std::size_t epoch : {1u, 3u, 4u}) CHECK(some[epoch] == all[epoch]);
  // A line of the epoch without evaluation tells of the training alone.
  const std::size_t line = result.out.find("epoch 3/5");
  REQUIRE(line != std::string::npos);
  CHECK(result.out.substr(line, result.out.find('\n', line) - line).find("test") == std::string::npos);
}

TEST_CASE("--keep says how many checkpoints stay besides the best, which --best finds again") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 50);
  const std::string run = folder / "run";
  // The rate is far too small to change an answer: the first epoch stays the best one.
  REQUIRE(heddle(small_training(folder.path(), run, {"--epochs", "5", "--keep", "2", "--lr", "1e-9"})).exit_code == 0);
  CHECK(checkpoints_of(run) ==
        Strings{"best.safetensors", "step-000000000028.safetensors", "step-000000000035.safetensors"});
  CHECK(json_file(run + "/run.json")["result"]["best_epoch"] == 1);
  const auto weights = [&](const Strings& more) {
    Strings arguments = {"eval", "--json", "--checkpoint", run};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = heddle(arguments);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return tools::Json::parse(result.out)["checkpoint"].get<std::string>();
  };
  CHECK(weights({}) == run + "/checkpoints/step-000000000035.safetensors");
  CHECK(weights({"--best"}) == run + "/checkpoints/best.safetensors");

  std::filesystem::remove(run + "/checkpoints/best.safetensors");
  const ProcessResult none = heddle({"eval", "--best", "--checkpoint", run});
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "--best: no best.safetensors can be used in " + run + ": there is none"));
}

TEST_CASE("an early stop ends the run after its best epoch, is saved, and goes on when more is asked for") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 50);
  const std::string run = folder / "run";
  const ProcessResult result = heddle(small_training(
      folder.path(), run, {"--epochs", "50", "--early-stop", "2", "--lr", "1e-9", "--checkpoint-every", "40"}));
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "early stop: no test accuracy above"));
  CHECK(contains(result.out, "of epoch 1 in 2 epochs"));
  CHECK(contains(result.out, "done     3 epochs"));
  CHECK(metrics_of(run).size() == 3);
  const tools::Json ended = json_file(run + "/run.json")["result"];
  CHECK(ended["finished"] == true);
  CHECK(ended["stopped_early"] == true);
  CHECK(ended["epochs"] == 3);
  CHECK(file_exists(run + "/checkpoints/step-000000000021.safetensors"));

  const ProcessResult again = heddle({"train", "--resume", run});
  CHECK(again.exit_code == 0);
  CHECK(contains(again.out, "the run is finished: 3 of 50 epochs are done (early stop)"));
  CHECK(contains(again.out, "--early-stop N with a larger N trains on"));
  const ProcessResult longer = heddle({"train", "--resume", run, "--early-stop", "4"});
  CHECK(longer.exit_code == 0);
  CHECK(metrics_of(run).size() == 5);
}

TEST_CASE("a time limit saves and ends with 0, also with ranks, and resumed runs come to the uninterrupted end") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 50);
  for (const std::string ranks : {"1", "2"}) {
    const auto train = [&](const std::string& out, const Strings& more) {
      Strings flags = {"--epochs", "2", "--momentum", "0.9", "--ranks", ranks, "--batch-size", "64"};
      flags.insert(flags.end(), more.begin(), more.end());
      return heddle(small_training(folder.path(), folder / (out + ranks), flags));
    };
    REQUIRE(train("whole", {}).exit_code == 0);
    const std::string run = folder / ("parts" + ranks);
    // Over before the first step: each call does one step, or two where ranks have to agree.
    ProcessResult result = train("parts", {"--time-limit", "0.001s"});
    int calls = 1;
    while (result.exit_code == 0 && json_file(run + "/run.json")["result"]["finished"] == false && calls < 20) {
      CHECK(contains(result.out, "the time limit of 0.001s has passed in epoch"));
      CHECK(contains(result.out, "continue with heddle train --resume " + run));
      result = heddle({"train", "--resume", run});
      ++calls;
    }
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(calls >= 4);
    CHECK(weights_of(run) == weights_of(folder / ("whole" + ranks)));
    CHECK(metrics_of(run) == metrics_of(folder / ("whole" + ranks)));
  }
  const ProcessResult wrong = heddle({"train", "--time-limit", "soon"});
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.err, "--time-limit is 'soon'; expected seconds, or a time such as 45s"));
}

TEST_CASE("ranks in processes stop together at their time limit") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 50);
  Strings arguments = small_training(folder.path(), folder / "run", {"--epochs", "3", "--time-limit", "0.001"});
  const std::vector<ProcessResult> results = heddle_as_two_ranks(arguments, folder.path());
  for (const ProcessResult& result : results) {
    INFO(result.err);
    CHECK(result.exit_code == 0);
  }
  CHECK(contains(results[0].out, "the time limit of 0.001 has passed in epoch 1 after step 1"));
}

TEST_CASE("checkpoints inside an epoch are resumed to the bit") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 330, 50);
  const Strings recipe = {"--epochs",     "3",         "--momentum", "0.9", "--schedule",         "cosine",
                          "--augment",    "crop-flip", "--keep",     "100", "--checkpoint-every", "100",
                          "--batch-size", "32"};
  const auto train = [&](const std::string& out, const Strings& more) {
    Strings flags = recipe;
    flags.insert(flags.end(), more.begin(), more.end());
    REQUIRE(heddle(small_training(folder.path(), folder / out, flags)).exit_code == 0);
  };
  train("whole", {});
  train("steps", {"--checkpoint-steps", "4"});
  CHECK(weights_of(folder / "steps") == weights_of(folder / "whole"));
  CHECK(metrics_of(folder / "steps") == metrics_of(folder / "whole"));
  const std::string run = folder / "steps", below = run + "/checkpoints/";
  CHECK(file_exists(below + "step-000000000016.safetensors"));
  CHECK(file_exists(below + "step-000000000032.safetensors"));
  // As if it had been killed after step 16, the fifth of the second epoch.
  for (const std::string& name : checkpoints_of(run)) {
    if (name > "step-000000000016.safetensors" || name == "best.safetensors") std::filesystem::remove(below + name);
  }
  const ProcessResult rest = heddle({"train", "--resume", run});
  INFO(rest.err);
  REQUIRE(rest.exit_code == 0);
  CHECK(contains(rest.out, "from epoch 2, step 16"));
  CHECK(weights_of(run) == weights_of(folder / "whole"));
  CHECK(metrics_of(run) == metrics_of(folder / "whole"));
}

}  // namespace heddle::test
