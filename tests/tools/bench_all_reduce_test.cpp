// `heddle bench all-reduce`: results that must come out, wrong ones that are found, bandwidths by formula, files, and
// ranks in processes.
#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <sstream>

#include "engine/device/cuda_plugin.h"
#include "nccl_comm/gloo_communicator.h"
#include "nccl_comm/rank_threads.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/planted_communicator.h"
#include "tests/tools/program.h"
#include "tools/bench/all_reduce_run.h"
#include "tools/command.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

using comm::ReduceOp;
using test::contains;
using test::get_file;
using test::heddle;
using test::json_file;
using test::put_file;
using test::TempFolder;

// What run_all_reduce() says on rank 0 of a group whose sums `wrong` replaces.
struct Printed {
  int code = -1;
  std::string out, err;
};
Printed run_planted(const std::vector<AllReduceCase>& cases, const testing::PlantedCalls& wrong) {
  const TempFolder folder;
  Printed printed;
  std::vector<int> codes(2, -1);
  comm::run_rank_threads(2, {}, [&](comm::Communicator& real) {
    const int rank = real.rank();
    const std::string name = folder / std::to_string(rank);
    const int out_fd = ::open((name + "-out").c_str(), O_CREAT | O_WRONLY, 0600);
    const int err_fd = ::open((name + "-err").c_str(), O_CREAT | O_WRONLY, 0600);
    {
      Console out(out_fd), err(err_fd);
      const RankHost host(std::make_unique<testing::PlantedCommunicator>(real, wrong), Device::cpu());
      codes[static_cast<std::size_t>(rank)] =
          run_all_reduce(cases, host, {.device = Device::cpu(), .device_name = "a CPU"}, 2, {}, out, err);
    }
    ::close(out_fd);
    ::close(err_fd);
  });
  CHECK(codes[0] == codes[1]);
  CHECK(get_file(folder / "1-out").empty());
  return {codes[0], get_file(folder / "0-out"), get_file(folder / "0-err")};
}

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("what ranks give to an all-reduce depends on rank, element and round, and its sums are known exactly") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
    std::set<std::int64_t> seen;
    for (int rank = 0; rank < 3; ++rank) {
      for (int round = 0; round < 2; ++round) {
        for (std::int64_t i = 0; i < 5; ++i) seen.insert(all_reduce_input(dtype, rank, i, round));
      }
    }
    // Equal by chance at most: bf16 has 256 values.
    CHECK(seen.size() > 25);
    std::int64_t sum = 0, largest = std::numeric_limits<std::int64_t>::min();
    for (int rank = 0; rank < 4; ++rank) {
      const std::int64_t value = all_reduce_input(dtype, rank, 7, 1);
      sum += value;
      largest = std::max(largest, value);
    }
    const double rounded =
        dtype == DType::bf16 ? double{static_cast<float>(bfloat16(static_cast<float>(sum)))} : static_cast<double>(sum);
    CHECK(all_reduce_expected(dtype, ReduceOp::sum, 4, 7, 1) == rounded);
    CHECK(all_reduce_expected(dtype, ReduceOp::max, 4, 7, 1) == static_cast<double>(largest));
  }
  // Words of which each half counts.
  CHECK(std::abs(all_reduce_input(DType::i64, 0, 0, 0)) > (std::int64_t{1} << 33));
}

TEST_CASE("bandwidths follow the formulas of nccl-tests") {
  const auto result = [](int ranks) {
    return AllReduceResult{.what = {.ranks = ranks, .numel = 1'000'000}, .timing = Timing{.median = 1e-3}};
  };
  CHECK(result(4).algorithm_bytes_per_second() == Approx(4e9));
  CHECK(result(4).bus_bytes_per_second() == Approx(6e9));
  CHECK(result(2).bus_bytes_per_second() == Approx(4e9));
  CHECK(result(1).bus_bytes_per_second() == 0);
  CHECK(AllReduceResult{}.algorithm_bytes_per_second() == 0);
}

TEST_CASE("a sum that is wrong in one element of one rank is found, is not timed, and fails the run") {
  const std::vector<AllReduceCase> cases = {{.backend = "in-process", .ranks = 2, .numel = 100},
                                            {.backend = "in-process", .ranks = 2, .dtype = DType::i64, .numel = 3}};
  const Printed right = run_planted(cases, {});
  CHECK(right.code == exit_code::kDone);
  CHECK(contains(right.out, "right"));
  CHECK(right.err.empty());

  const Printed wrong =
      run_planted(cases, {.all_reduce = [](comm::Communicator& real, Tensor& x, ReduceOp op, std::string_view what) {
                    real.all_reduce(x, op, what);
                    if (what == "check" && x.dtype() == DType::f32 && real.rank() == 1) {
                      x.mutable_host_data<float>()[42] += 1;
                    }
                  }});
  CHECK(wrong.code == exit_code::kFailed);
  CHECK(contains(wrong.out, "WRONG  2 elements; rank 1: element 42 of 100 is "));
  CHECK(contains(wrong.out, "right"));
  CHECK(contains(wrong.err, "1 of 2 cases have wrong elements"));

  // An exchange that does nothing leaves the second round's numbers, too.
  const Printed none =
      run_planted(cases, {.all_reduce = [](comm::Communicator& real, Tensor& x, ReduceOp op, std::string_view what) {
                    if (what != "check") real.all_reduce(x, op, what);
                  }});
  CHECK(none.code == exit_code::kFailed);
  CHECK(contains(none.err, "2 of 2 cases"));
}

TEST_CASE("the program checks and times all backends, dtypes and operations, and compares with an earlier run") {
  const TempFolder folder;
  const std::vector<std::string> arguments = {
      "bench",   "all-reduce",   "--ranks",   "2,3", "--dtype", "f32,bf16,i64",    "--op",  "sum,max",
      "--sizes", "8,1000,64KiB", "--repeats", "2",   "--json",  folder / "a.json", "--csv", folder / "a.csv"};
  const test::ProcessResult result = heddle(arguments);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK_FALSE(contains(result.out, "WRONG"));
  Json report = json_file(folder / "a.json");
  REQUIRE(report["results"].size() == 2 * 3 * 2 * 3 * thread_backends().size());
  std::set<std::string> backends;
  for (const Json& r : report["results"]) {
    backends.insert(r["backend"].get<std::string>());
    CHECK(r["right"] == true);
    CHECK(r["bytes"].get<double>() <= 65536);
    CHECK(r["min_seconds"].get<double>() > 0);
    CHECK(r["min_seconds"] <= r["median_seconds"]);
    CHECK(r["median_seconds"] <= r["max_seconds"]);
    const double n = r["ranks"].get<double>();
    CHECK(r["bus_bytes_per_second"].get<double>() ==
          Approx(r["algorithm_bytes_per_second"].get<double>() * 2 * (n - 1) / n));
  }
  CHECK(backends.size() == thread_backends().size());
  CHECK(count_lines(get_file(folder / "a.csv")) == report["results"].size() + 1);

  const auto compared = [&](double factor) {
    for (Json& r : report["results"]) r["min_seconds"] = r["min_seconds"].get<double>() * factor;
    put_file(folder / "b.json", report.dump());
    std::vector<std::string> again = arguments;
    again.insert(again.end(), {"--baseline", folder / "b.json", "--max-regression", "20%"});
    return heddle(again);
  };
  const test::ProcessResult better = compared(1000);
  CHECK(better.exit_code == 0);
  CHECK(contains(better.out, "0 slower by more than 20%"));
  const test::ProcessResult worse = compared(1e-6);
  CHECK(worse.exit_code == 1);
  CHECK(contains(worse.out, "slower   in-process, 2 ranks, f32 sum, 8 bytes: "));
}

TEST_CASE("on a simulated GPU all-reduces are checked and counted, and nothing is timed") {
  load_cuda_plugin();
  for (const Device device : testing::test_devices()) {
    if (device.is_cpu() || !runtime_for(device).is_simulated()) continue;
    const TempFolder folder;
    const test::ProcessResult result =
        heddle({"bench", "all-reduce", "--device", device.to_string(), "--ranks", "3", "--dtype", "f32,bf16,i64",
                "--op", "sum,max", "--sizes", "6000", "--json", folder / "report"});
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(contains(result.out, "simulated device"));
    CHECK(contains(result.out, "launches a rank"));
    CHECK_FALSE(contains(result.out, "algbw"));
    const Json report = json_file(folder / "report");
    CHECK(report["timed"] == false);
    REQUIRE(report["results"].size() == 6);
    for (const Json& r : report["results"]) {
      CHECK(r["right"] == true);
      CHECK_FALSE(r.contains("median_seconds"));
      CHECK(r["launches"] > 0);
    }
  }
}

TEST_CASE("processes of a launcher measure what they exchange, and the first one reports") {
  if (!comm::why_no_gloo().empty()) return;
  const TempFolder folder;
  const std::vector<test::ProcessResult> ranks = test::heddle_as_two_ranks(
      {"bench", "all-reduce", "--sizes", "4KiB", "--repeats", "2", "--json", folder / "report"}, folder.path());
  const test::ProcessResult &first = ranks[0], &second = ranks[1];
  INFO(first.out << first.err << second.err);
  CHECK(first.exit_code == 0);
  CHECK(second.exit_code == 0);
  CHECK(second.out.empty());
  const Json report = json_file(folder / "report");
  REQUIRE(report["results"].size() == 1);
  CHECK(report["results"][0]["backend"] == "gloo");
  CHECK(report["results"][0]["ranks"] == 2);
  CHECK(report["results"][0]["right"] == true);
}

TEST_CASE("wrong usage of heddle bench all-reduce is refused with what is known") {
  const auto error_of = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bench", "all-reduce"});
    const test::ProcessResult result = heddle(std::move(arguments));
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(contains(error_of({"--dtype", "f32,f16"}), "--dtype is 'f16'; expected f32, bf16, i64"));
  CHECK(contains(error_of({"--op", "min"}), "expected sum, max"));
  CHECK(contains(error_of({"--backend", "goo"}), "--backend is 'goo'; expected in-process"));
  CHECK(contains(error_of({"--sizes", "4 apples"}), "expected bytes, such as 4096, 64KiB"));
  CHECK(contains(error_of({"--sizes", "5GiB"}), "more than 4GiB"));
  CHECK(contains(error_of({"--ranks", "0"}), "--ranks is '0'"));
  CHECK(contains(error_of({"--ranks", "2,,3"}), "--ranks is '2,,3'"));
  CHECK(contains(error_of({"--max-regression", "5%"}), "needs --baseline"));
  CHECK(contains(error_of({"--shape", "n=5"}), "unknown flag --shape"));
  CHECK(contains(heddle({"bench", "all-reduc"}).err, "did you mean all-reduce?"));
  CHECK(contains(heddle({"bench", "all-reduce", "--help"}).out, "--sizes LIST"));
}

TEST_CASE("lists and sizes are read, and what is none is refused") {
  CHECK(parse_list("a, b,c", "x") == std::vector<std::string>{"a", "b", "c"});
  for (const char* const text : {"", ",", "a,", ",a", " "}) CHECK_THROWS_AS(parse_list(text, "x"), UsageError);
  CHECK(parse_nbytes("4096", "x") == 4096);
  CHECK(parse_nbytes("3KiB", "x") == 3072);
  CHECK(parse_nbytes("2M", "x") == std::size_t{2} << 20);
  CHECK(parse_nbytes("1 GiB", "x") == std::size_t{1} << 30);
  for (const char* const text : {"", "0", "KiB", "-1", "1.5K", "4kib", "9999999999"}) {
    CHECK_THROWS_AS(parse_nbytes(text, "x"), UsageError);
  }
}

}  // namespace heddle::tools::bench
