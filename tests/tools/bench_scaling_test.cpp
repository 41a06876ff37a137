// `heddle bench scaling`: the parts of a step add up to it and are what the rank did, the prediction follows its
// formula, and the program measures threads and processes.
#include <chrono>
#include <memory>
#include <thread>

#include "engine/core/text.h"
#include "nccl_comm/gloo_communicator.h"
#include "nccl_comm/rank_threads.h"
#include "tests/support/catch.h"
#include "tests/support/device_training.h"
#include "tests/support/planted_communicator.h"
#include "tests/tools/program.h"
#include "tools/bench/scaling_report.h"

namespace heddle::tools::bench {
namespace {

using test::contains;
using test::heddle;
using test::json_file;
using test::put_file;
using test::TempFolder;

double sum_of_parts(const StepSplit& split) { return split.compute + split.exposed + split.load; }

}  // namespace

TEST_CASE("a step clock gives each stretch of time to what was done in it") {
  double now = 100;
  StepClock clock([&now] { return now; });
  clock.begin_step();
  now += 1;  // zero_grad
  clock.load_begins();
  now += 2;
  clock.load_ends();
  now += 4;  // forward, backward
  clock.exchange_begins(40);
  now += 8;
  clock.exchange_ends();
  now += 16;  // more of backward
  clock.exchange_begins(2);
  now += 32;
  clock.exchange_ends();
  now += 64;  // update
  const StepSplit split = clock.end_step();
  CHECK(split.step == 127);
  CHECK(split.load == 2);
  CHECK(split.exposed == 8 + 32);
  CHECK(split.compute == 1 + 4 + 16 + 64);
  CHECK(split.hidden == 0);
  CHECK(clock.exchanged_nbytes() == 42);
  // The time between steps belongs to none.
  now += 1000;
  clock.begin_step();
  now += 3;
  CHECK(clock.end_step().step == 3);
  CHECK(clock.exchanged_nbytes() == 0);
}

TEST_CASE("the mean of the middle half of the steps leaves out what was disturbed, and its parts add up") {
  std::vector<StepSplit> steps;
  for (const double x : {900.0, 4.0, 1.0, 2.0, 3.0, 5.0, 0.5, 800.0}) {
    steps.push_back({.step = 3 * x, .compute = 2 * x, .exposed = 0.75 * x, .load = 0.25 * x});
  }
  const StepSplit mean = middle_mean(steps);
  CHECK(mean.step == 3 * 3.5);
  CHECK(mean.compute == 2 * 3.5);
  CHECK(sum_of_parts(mean) == mean.step);
  CHECK(middle_mean({{.step = 7}}).step == 7);
  CHECK_THROWS_AS(mean_of({}), InvalidArgument);
}

TEST_CASE("the cases are one rank and every way to use more, and the prediction follows its formula") {
  const ScalingOptions options{
      .batch_size = 64,
      .ranks = {1, 2, 4},
      .modes = {ScalingMode::strong, ScalingMode::weak, ScalingMode::apart, ScalingMode::threads},
      .backends = {"in-process", "gloo"},
      .threads_per_rank = 2,
      .cores = 4};
  const std::vector<ScalingCase> cases = plan_scaling(options);
  REQUIRE(cases.size() == 1 + 2 * 6);
  CHECK(cases[0].ranks == 1);
  CHECK(cases[0].backend.empty());
  CHECK(cases[0].batch_size == 64);
  for (const ScalingCase& what : cases) {
    CHECK(what.batch_size == (what.mode == ScalingMode::weak ? 64 * what.ranks : 64));
    const bool threads = what.mode == ScalingMode::threads;
    CHECK(what.groups_ranks() == (threads ? 1 : what.ranks));
    CHECK(what.threads_of_rank() == (threads ? 2 * what.ranks : 2));
    const bool exchanges = what.ranks > 1 && (what.mode == ScalingMode::strong || what.mode == ScalingMode::weak);
    CHECK(what.backend.empty() == !exchanges);
    CHECK(scaling_mode_from_name(name_of(what.mode)) == what.mode);
  }
  const auto predicted = [&](ScalingMode mode, int ranks, std::int64_t batch) {
    return predict_step({.mode = mode, .ranks = ranks, .threads_per_rank = 2, .batch_size = batch}, cases[0], 0.8, 0.05,
                        options.cores);
  };
  // Half of the images each; four ranks of two threads on four cores take twice as long.
  CHECK(predicted(ScalingMode::strong, 2, 64) == Approx(0.4 + 0.05));
  CHECK(predicted(ScalingMode::weak, 2, 128) == Approx(0.8 + 0.05));
  CHECK(predicted(ScalingMode::strong, 4, 64) == Approx(0.2 * 2 + 0.05));
  CHECK(predicted(ScalingMode::weak, 4, 256) == Approx(0.8 * 2 + 0.05));
}

TEST_CASE("what a trainer's step consists of is seen: a slow exchange is exposed, and parts add up to the step") {
  constexpr std::chrono::milliseconds kSlow{20};
  constexpr int kSteps = 4;
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 64, .n_test = 1});
  Settings settings;
  settings.batch_size = 16;
  std::vector<std::vector<StepSplit>> splits(2);
  std::vector<std::size_t> nbytes(2);
  comm::run_rank_threads(2, {}, [&](comm::Communicator& real) {
    testing::PlantedCommunicator slow(
        real, {.all_reduce = [&](comm::Communicator& c, Tensor& x, comm::ReduceOp op, std::string_view what) {
          std::this_thread::sleep_for(kSlow);
          c.all_reduce(x, op, what);
        }});
    test::Training training(settings, data, Device::cpu(), &slow);
    StepClock clock;
    const auto rank = static_cast<std::size_t>(real.rank());
    training.trainer.start_epoch();
    training.trainer.observe(&clock);
    for (int i = 0; i < kSteps; ++i) {
      clock.begin_step();
      training.trainer.advance();
      splits[rank].push_back(clock.end_step());
      nbytes[rank] = clock.exchanged_nbytes();
    }
    training.trainer.observe(nullptr);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    // LeNet's gradients, padded, and their tail.
    CHECK(nbytes[rank] > 44426 * sizeof(float));
    CHECK(nbytes[rank] < 44500 * sizeof(float));
    for (const StepSplit& split : splits[rank]) {
      CHECK(split.exposed >= std::chrono::duration<double>(kSlow).count());
      CHECK(split.compute > 0);
      CHECK(split.load > 0);
      CHECK(split.hidden == 0);
      CHECK(sum_of_parts(split) == Approx(split.step).epsilon(1e-9));
    }
  }
}

TEST_CASE("the program measures strong and weak scaling, with parts that add up, and compares with an earlier run") {
  const TempFolder folder;
  const std::vector<std::string> backends = thread_backends();
  const std::vector<std::string> arguments = {"bench",        "scaling",
                                              "--model",      "lenet",
                                              "--batch-size", "32",
                                              "--ranks",      "2,3",
                                              "--rounds",     "2",
                                              "--steps",      "3",
                                              "--backend",    join_names(backends, ","),
                                              "--json",       folder / "a.json"};
  const test::ProcessResult result = heddle(arguments);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "exposed exchange"));
  Json report = json_file(folder / "a.json");
  CHECK(report["gradient_bytes"].get<std::int64_t>() > 44426 * 4);
  REQUIRE(report["results"].size() == 1 + 2 * (2 + 2 * backends.size()));
  CHECK(report["results"][0]["ranks"] == 1);
  CHECK(report["results"][0]["efficiency"] == Approx(1.0));
  const double one = report["results"][0]["step_seconds"].get<double>();
  for (const Json& r : report["results"]) {
    const auto number = [&](const char* name) { return r[name].get<double>(); };
    CHECK(number("compute_seconds") + number("exposed_communication_seconds") + number("loader_seconds") ==
          Approx(number("step_seconds")).epsilon(1e-6));
    CHECK(number("images_per_second") * number("step_seconds") == Approx(number("batch_size")));
    const bool exchanges = r["backend"] != "";
    CHECK((number("exposed_communication_seconds") > 0) == exchanges);
    CHECK((number("all_reduce_seconds") > 0) == exchanges);
    const double images = number("batch_size") / number("ranks") / 32;
    CHECK(number("predicted_step_seconds") >= Approx(one * images + number("all_reduce_seconds")));
    CHECK(number("fastest_step_seconds") > 0);
    CHECK(number("fastest_step_seconds") <= r["round_seconds"]["min"].get<double>());
  }
  const auto compared = [&](double factor) {
    for (Json& r : report["results"]) r["round_seconds"]["min"] = r["round_seconds"]["min"].get<double>() * factor;
    put_file(folder / "b.json", report.dump());
    std::vector<std::string> again = arguments;
    again.insert(again.end(), {"--baseline", folder / "b.json", "--max-regression", "20%"});
    return heddle(again);
  };
  CHECK(compared(1000).exit_code == 0);
  const test::ProcessResult worse = compared(1e-6);
  CHECK(worse.exit_code == 1);
  CHECK(contains(worse.out, "slower   weak in-process, 2 ranks, batch 64: "));
}

TEST_CASE("ranks with shares of different size begin their epochs together") {
  // Of 6144 images 86 in a step make 71 steps, and 85 make 72.
  const test::ProcessResult result = heddle({"bench", "scaling", "--batch-size", "256", "--ranks", "3", "--scaling",
                                             "apart", "--rounds", "1", "--steps", "67"});
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
}

TEST_CASE("processes of a launcher measure themselves against one of them") {
  if (!comm::why_no_gloo().empty()) return;
  const TempFolder folder;
  const std::vector<test::ProcessResult> ranks = test::heddle_as_two_ranks(
      {"bench", "scaling", "--batch-size", "16", "--steps", "2", "--rounds", "1", "--json", folder / "report"},
      folder.path());
  const test::ProcessResult &first = ranks[0], &second = ranks[1];
  INFO(first.out << first.err << second.err);
  CHECK(first.exit_code == 0);
  CHECK(second.exit_code == 0);
  CHECK(second.out.empty());
  const Json report = json_file(folder / "report");
  REQUIRE(report["results"].size() == 5);
  for (std::size_t i = 1; i < 5; ++i) {
    CHECK(report["results"][i]["ranks"] == 2);
    CHECK((report["results"][i]["backend"] == "gloo") == (i < 3));
  }
}

TEST_CASE("wrong usage of heddle bench scaling is refused with what is known") {
  const auto error_of = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bench", "scaling"});
    const test::ProcessResult result = heddle(std::move(arguments));
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(contains(error_of({"--model", "lenett"}), "did you mean lenet?"));
  CHECK(contains(error_of({"--scaling", "fast"}), "expected strong, weak, apart, threads"));
  CHECK(contains(error_of({"--batch-size", "2", "--ranks", "4"}), "fewer images than there are ranks, 4"));
  CHECK(contains(error_of({"--rounds", "0"}), "--rounds is '0'"));
}

}  // namespace heddle::tools::bench
