// `heddle bench`: clocks and limits, wrong kernels, files, baselines, and wrong usage.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "engine/cpu/cpu_backend.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tools/bench/baseline.h"
#include "tools/bench/benchmark.h"
#include "tools/bench/report.h"
#include "tools/command.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

using test::contains;
using test::get_file;
using test::heddle;
using test::json_file;
using test::put_file;
using test::TempFolder;

// A backend whose ReLU is a little off at its last element, and whose axpy forgets it.
class WrongBackend final : public cpu::CpuBackend {
 public:
  void unary(UnaryOp op, const Tensor& x, double a, double b, Tensor& y) override {
    CpuBackend::unary(op, x, a, b, y);
    if (op == UnaryOp::relu) y.mutable_host_data<float>()[y.numel() - 1] += 1e-3f;
  }
  void linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, Tensor& y) override {
    CpuBackend::linear_forward(x, w, bias, relu, y);
    y.mutable_host_data<float>()[y.numel() - 1] += 1e-2f;
  }
  void fill(Tensor& y, double value) override {
    Tensor most = y.narrow(0, y.dim(0) - 1);
    CpuBackend::fill(most, value);
  }
};

struct Printed {
  int code = -1;
  std::string out, err;
};

// run_benchmark with a backend and a device name of the test's.
Printed run_with(Backend& backend, const BenchmarkOptions& options, bool simulated = false) {
  const TempFolder folder;
  const Runtime runtime{
      .device = Device::cpu(), .device_name = "a CPU", .simulated = simulated, .backend_name = "double"};
  const int out_fd = ::open((folder / "out").c_str(), O_CREAT | O_WRONLY, 0600);
  const int err_fd = ::open((folder / "err").c_str(), O_CREAT | O_WRONLY, 0600);
  Printed printed;
  {
    Console out(out_fd), err(err_fd);
    printed.code = run_benchmark(options, runtime, backend, out, err);
  }
  ::close(out_fd);
  ::close(err_fd);
  printed.out = get_file(folder / "out");
  printed.err = get_file(folder / "err");
  return printed;
}

Work work(const std::string& op, const std::string& sizes) {
  const OpRow* const row = find_op(op);
  REQUIRE(row != nullptr);
  return {row, row->sizes.with(sizes, op)};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("times are summed up as median, extremes and quartiles") {
  const Timing odd = summarize({5, 1, 4, 2, 3}, 7);
  CHECK(odd.median == 3);
  CHECK(odd.min == 1);
  CHECK(odd.max == 5);
  CHECK(odd.spread == Approx(2.0 / 3));
  CHECK(odd.repeats == 5);
  CHECK(odd.calls == 7);
  CHECK(summarize({1, 2}, 1).median == 1.5);
  CHECK_THROWS_AS(summarize({}, 1), InvalidArgument);
}

TEST_CASE("the limit is the slower of moving and computing, and operands in a cache need no moving") {
  const Limits limits{.bytes_per_second = 100, .flops_per_second = 1000, .measured = false};
  CHECK(bound_of(200, 500, limits, true).seconds == 2);
  CHECK(std::string(bound_of(200, 500, limits, true).by) == "memory");
  CHECK(bound_of(10, 500, limits, true).seconds == 0.5);
  CHECK(std::string(bound_of(200, 500, limits, false).by) == "arithmetic");
  CHECK(bound_of(200, 500, {}, true).seconds == 0);
  CHECK(allowed_excess(limits) == 1);
}

TEST_CASE("calls are timed warm and cold, and numbers above the limit are a warning") {
  CHECK(find_limits(Device::cpu(), DType::f32).bytes_per_second > 1e8);
  CHECK(find_limits(Device::cpu(), DType::f32).flops_per_second > 1e8);
  // A device that can move a byte a second.
  const Limits slow{.bytes_per_second = 1, .flops_per_second = 1, .cache_nbytes = 1e6, .measured = false};
  Runner runner(backend_for(Device::cpu()), {.repeats = 3}, slow);
  std::vector<OpResult> results;
  // Each kernel's short call is timed several times in a row; on a machine that is busy elsewhere one can look long
  // enough.
  std::vector<bool> several;
  for (int attempt = 0; attempt < 20; ++attempt) {
    results = {runner.run(work("linear_forward", "n=4 in=8 out=8"))};
    several.resize(results[0].kernels.size(), false);
    for (std::size_t i = 0; i < several.size(); ++i) {
      const KernelResult& kernel = results[0].kernels[i];
      if (kernel.warm.has_value() && kernel.warm->timing.calls > 1) several[i] = true;
    }
    if (std::find(several.begin(), several.end(), false) == several.end()) break;
  }
  CHECK(std::find(several.begin(), several.end(), false) == several.end());
  for (const KernelResult& kernel : results[0].kernels) {
    REQUIRE(kernel.warm.has_value());
    REQUIRE(kernel.cold.has_value());
    const Timing& warm = kernel.warm->timing;
    CHECK(warm.repeats == 3);
    CHECK(warm.min > 0);
    CHECK(warm.min <= warm.median);
    CHECK(warm.median <= warm.max);
    CHECK(kernel.cold->timing.calls == 1);
    CHECK(kernel.warm->flops_per_second == Approx(2 * 4 * 8 * 8 / warm.median));
    CHECK(kernel.cold->bytes_per_second == Approx(results[0].nbytes / kernel.cold->timing.median));
    CHECK(kernel.warm->impossible);
  }
  const std::vector<std::string> warnings = warning_lines(results, slow);
  CHECK(warnings.size() == 2 * results[0].kernels.size());
  CHECK(contains(warnings[0], "faster than"));
  Limits fast = slow;
  fast.bytes_per_second = fast.flops_per_second = 1e18;
  CHECK(warning_lines({Runner(backend_for(Device::cpu()), {.repeats = 2}, fast).run(work("relu", "n=64"))}, fast)
            .empty());
}

TEST_CASE("a run warns of numbers above the device's peak, on standard error and in the report") {
  const TempFolder folder;
  const auto warnings_with = [&](double flops_per_second, std::string& err) {
    const Printed printed =
        run_with(backend_for(Device::cpu()),
                 {.works = {work("linear_forward", "n=4 in=8 out=8"), work("neg", "n=64")},
                  .runner = {.repeats = 2},
                  .json = folder / "report",
                  .limits = Limits{.bytes_per_second = 1e18, .flops_per_second = flops_per_second, .measured = false}});
    // A suspicious number is no failure.
    CHECK(printed.code == exit_code::kDone);
    err = printed.err;
    return json_file(folder / "report")["warnings"];
  };
  std::string err;
  const Json warnings = warnings_with(1, err);
  REQUIRE(warnings.size() >= 2);
  for (const Json& warning : warnings) {
    CHECK(contains(warning, "linear_forward n=4"));
    CHECK(contains(warning, "faster than the arithmetic of this device allows"));
    CHECK(contains(err, "heddle: warning: " + warning.get<std::string>()));
  }
  CHECK(warnings_with(1e18, err).empty());
  CHECK(err.empty());
}

TEST_CASE("a wrong kernel is not timed and the run fails") {
  WrongBackend wrong;
  const Printed printed =
      run_with(wrong, {.works = {work("relu", "n=50"), work("neg", "n=50")}, .runner = {.repeats = 2}});
  CHECK(printed.code == exit_code::kFailed);
  CHECK(contains(printed.out, "WRONG: output 0, element 49"));
  CHECK(contains(printed.err, "1 kernels differ from the reference"));
  const std::vector<std::string> lines = lines_of(printed.out);
  // relu has no time, neg has.
  CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& l) { return contains(l, "warm"); }) == 1);

  // An element that is not written stays NaN.
  const Printed forgot = run_with(wrong, {.works = {work("fill", "n=50")}, .runner = {.repeats = 0}});
  CHECK(forgot.code == exit_code::kFailed);
  CHECK(contains(forgot.out, "element 49 is nan"));

  // Also where only both ends are compared.
  const Printed large =
      run_with(wrong, {.works = {work("linear_forward", "n=300 in=1024 out=1024")}, .runner = {.repeats = 0}});
  CHECK(large.code == exit_code::kFailed);
  CHECK(contains(large.out, "WRONG"));
}

TEST_CASE("on a simulated device kernels are compared, and nothing is timed") {
  const TempFolder folder;
  const Printed printed =
      run_with(backend_for(Device::cpu()),
               {.works = {work("conv2d_forward", "n=2 h=6 w=6 c=1 o=2")}, .json = folder / "report"}, true);
  CHECK(printed.code == exit_code::kDone);
  CHECK(contains(printed.out, "simulated device"));
  CHECK(contains(printed.out, "right to"));
  CHECK_FALSE(contains(printed.out, "warm"));
  const Json report = json_file(folder / "report");
  CHECK(report["timed"] == false);
  CHECK(report["results"][0]["flops"] == 2 * 2 * 36 * 2 * 9);
  CHECK_FALSE(report["results"][0]["kernels"][0].contains("warm"));
}

TEST_CASE("the program writes JSON and CSV, and compares with an earlier run") {
  const TempFolder folder;
  const std::vector<std::string> arguments = {"bench",     "conv2d_forward",
                                              "--shape",   "n=2 h=6 w=6 c=1 o=2;n=3 h=6 w=6 c=2 o=3 relu=0",
                                              "--repeats", "3",
                                              "--threads", "1",
                                              "--json",    folder / "a.json",
                                              "--csv",     folder / "a.csv"};
  const test::ProcessResult result = heddle(arguments);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "measured in this run"));
  CHECK(contains(result.out, "cold"));

  Json report = json_file(folder / "a.json");
  for (const char* name : {"heddle", "device", "backend", "threads", "host"}) CHECK(report["machine"].contains(name));
  CHECK(contains(report["machine"]["backend"].get<std::string>(), "oneDNN"));
  CHECK(report["limits"]["measured"] == true);
  REQUIRE(report["results"].size() == 2);
  std::size_t kernels = 0;
  for (const Json& op : report["results"]) {
    CHECK(op["op"] == "conv2d_forward");
    CHECK(op["checked"] == "all");
    for (const Json& kernel : op["kernels"]) {
      ++kernels;
      CHECK(kernel["right"] == true);
      CHECK(kernel["warm"]["repeats"] == 3);
      CHECK(kernel["warm"]["min_seconds"].get<double>() > 0);
      CHECK(kernel["warm"]["median_seconds"] >= kernel["warm"]["min_seconds"]);
      CHECK(kernel["cold"]["calls_per_repeat"] == 1);
    }
  }
  const std::vector<std::string> csv = lines_of(get_file(folder / "a.csv"));
  REQUIRE(csv.size() == kernels + 1);
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  for (const std::string& line : csv) CHECK(commas(line) == commas(csv[0]));
  CHECK(csv[1].starts_with("conv2d_forward,n=2 h=6 w=6 c=1 o=2 k=3"));

  const auto compared = [&](double factor) {
    for (Json& op : report["results"]) {
      for (Json& kernel : op["kernels"]) {
        kernel["warm"]["min_seconds"] = kernel["warm"]["min_seconds"].get<double>() * factor;
      }
    }
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
  CHECK(contains(worse.out, "slower   conv2d_forward n=2"));
}

TEST_CASE("a baseline allows what it is told, names what it lacks, and must be a report") {
  const auto result_of = [](double min) {
    OpResult result{.op = "relu", .sizes = "n=8"};
    result.kernels.push_back({.automatic = true, .check = {.ok = true}});
    result.kernels[0].warm = Speed{.timing = {.median = 2 * min, .min = min}};
    return std::vector<OpResult>{result};
  };
  const Json machine = {{"device", "cpu: A"}};
  Json baseline = to_json({.machine = machine, .timed = true}, result_of(1e-3));
  const auto regressions = [&](double min, double allowed) {
    return compare_with_baseline(baseline, machine, result_of(min), allowed).regressions.size();
  };
  CHECK(regressions(1.04e-3, 0.05) == 0);
  CHECK(regressions(1.06e-3, 0.05) == 1);
  CHECK(regressions(1.06e-3, 0.1) == 0);
  std::vector<OpResult> other = result_of(1e-3);
  other[0].sizes = "n=9";
  const Comparison comparison = compare_with_baseline(baseline, {{"device", "cpu: B"}}, other, 0.05);
  CHECK(comparison.compared == 0);
  REQUIRE(comparison.notes.size() == 2);
  CHECK(contains(comparison.notes[0], "another device"));
  CHECK(contains(comparison.notes[1], "relu n=9 f32 own"));
  CHECK_THROWS_AS(compare_with_baseline(Json::array(), machine, other, 0.05), UsageError);
  CHECK_THROWS_AS(compare_with_baseline({{"results", 3}}, machine, other, 0.05), UsageError);
  CHECK(parse_percent("5%", "--x") == 0.05);
  CHECK(parse_percent("12.5", "--x") == 0.125);
  for (const char* text : {"", "%", "five", "-1%", "5%%"}) CHECK_THROWS_AS(parse_percent(text, "--x"), UsageError);
}

TEST_CASE("wrong usage of heddle bench is refused with what is known") {
  const auto error_of = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    const test::ProcessResult result = heddle(std::move(arguments));
    CHECK(result.exit_code == 2);
    return result.err;
  };
  const std::string unknown = error_of({"conv2d_forwrd"});
  CHECK(contains(unknown, "did you mean conv2d_forward?"));
  CHECK(contains(unknown, "Known: all, conv2d_forward, "));
  CHECK(contains(unknown, "gather_images"));
  CHECK(contains(error_of({}), "needs the name of an op"));
  CHECK(contains(error_of({"relu", "--shape", "m=5"}), "unknown size 'm'; expected n"));
  CHECK(contains(error_of({"relu", "neg", "--shape", "n=5"}), "--shape goes with one op"));
  CHECK(contains(error_of({"relu", "--model", "lenet"}), "--model brings its own ops"));
  CHECK(contains(error_of({"--model", "lenet18"}), "expected one of lenet"));
  CHECK(contains(error_of({"relu", "--dtype", "f16"}), "expected f32 or bf16"));
  CHECK(contains(error_of({"relu", "--kernels", "onw"}), "did you mean own?"));
  CHECK(contains(error_of({"relu", "--repeats", "-1"}), "--repeats is '-1'"));
  CHECK(contains(error_of({"relu", "--max-regression", "5%"}), "needs --baseline"));
  CHECK(contains(error_of({"relu", "--batch-size", "5"}), "--batch-size goes with --model"));
}

TEST_CASE("a model's ops are run, with the sum of the step") {
  const test::ProcessResult result = heddle({"bench", "--model", "lenet", "--batch-size", "4", "--repeats", "1"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "one step of lenet, batch 4"));
  CHECK(contains(result.out, "step     own kernels where there are: "));
}

}  // namespace heddle::tools::bench
