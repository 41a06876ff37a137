// `heddle bench`: is each kernel right, and how far is it from what the machine can do.
#include <fmt/format.h>

#include "engine/backend/backend.h"
#include "engine/core/text.h"
#include "tools/bench/arguments.h"
#include "tools/bench/benchmark.h"
#include "tools/bench/model_ops.h"
#include "tools/command_bench.h"
#include "tools/command_line.h"
#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

using bench::BenchmarkOptions;
using bench::OpRow;

// Benchmarks with flags of their own.
struct Benchmark {
  const char* name;
  int (*run)(CommandContext& context);
};
constexpr Benchmark kBenchmarks[] = {{"all-reduce", run_bench_all_reduce}, {"scaling", run_bench_scaling}};

constexpr std::int64_t kMaxRepeats = 100000, kMaxBatch = 1000000;

CommandSpec bench_spec() {
  CommandSpec spec{
      .name = "heddle bench",
      .summary = "kernels: first whether they are right, then time, bytes/s, flop/s and share of the limit",
      .example =
          "heddle bench conv2d_forward --shape 'n=256 h=28 w=28 c=1 o=6 k=5 padding=0'\n"
          "  heddle bench --model lenet --json lenet.json\n"
          "  heddle bench --model lenet --baseline lenet.json --max-regression 10%",
      .flags = {{"shape", "SIZES", "NAME=N ...; the names are the op's; ';' separates several cases"},
                {"model", "NAME", "the ops of one training step: " + join_names(bench::bench_model_names(), "|")},
                {"batch-size", "N", "images of --model", "256"},
                {"dtype", "NAME", "f32 or bf16", "f32"},
                {"device", "NAME", "auto, cpu, or cuda[:i]", "auto"},
                {"threads", "N", "CPU threads", "as many as this process may use"},
                {"kernels", "NAME", "auto (every kind there is, side by side), vendor or own", "auto"},
                {"repeats", "N", "times the clock is read; 0: compare with the reference only", "20"}},
      .positional_name = "OP...",
      .positional_help =
          "names of ops, or 'all'; an unknown name prints the list\n"
          "  all-reduce, scaling: benchmarks of ranks, with flags of their own; heddle bench all-reduce --help"};
  const std::vector<FlagSpec> files = bench::report_flags("a kernel");
  spec.flags.insert(spec.flags.end(), files.begin(), files.end());
  return spec;
}

const OpRow& op_of(const std::string& name) {
  const OpRow* const row = bench::find_op(name);
  if (row != nullptr) return *row;
  std::vector<std::string> names = bench::op_names();
  for (const Benchmark& benchmark : kBenchmarks) names.emplace_back(benchmark.name);
  throw UsageError(
      fmt::format("unknown op '{}'{}\nKnown: all, {}", name, did_you_mean(name, names), join_names(names)));
}

void add_model(const ParsedArguments& arguments, BenchmarkOptions& options) {
  if (!arguments.positionals.empty() || arguments.has("shape")) {
    throw UsageError("--model brings its own ops and sizes; leave out OP and --shape");
  }
  options.model = arguments.get("model");
  options.batch_size = bench::whole_number(arguments, "batch-size", 256, 1, kMaxBatch);
  for (const bench::ModelOp& op : bench::model_ops(options.model, options.batch_size)) {
    const OpRow& row = op_of(op.op);
    options.works.push_back({&row, row.sizes.with(op.sizes, op.op), op.count});
  }
}

void add_ops(const ParsedArguments& arguments, BenchmarkOptions& options) {
  if (arguments.positionals.empty()) {
    throw UsageError("heddle bench needs the name of an op, 'all', or --model NAME; see heddle bench --help");
  }
  if (arguments.has("batch-size")) throw UsageError("--batch-size goes with --model; use --shape n=N");
  if (arguments.has("shape") && (arguments.positionals.size() > 1 || arguments.positionals[0] == "all")) {
    throw UsageError("--shape goes with one op");
  }
  for (const std::string& name : arguments.positionals) {
    if (name == "all") {
      for (const OpRow& row : bench::op_rows()) options.works.push_back({&row, row.sizes});
      continue;
    }
    const OpRow& row = op_of(name);
    std::string shapes = arguments.get("shape");
    do {
      const std::size_t end = std::min(shapes.find(';'), shapes.size());
      options.works.push_back({&row, row.sizes.with(shapes.substr(0, end), "--shape of " + name)});
      shapes.erase(0, std::min(end + 1, shapes.size()));
    } while (!shapes.empty());
  }
}

BenchmarkOptions read_options(const ParsedArguments& arguments, const Settings& settings) {
  BenchmarkOptions options;
  const std::string dtype = arguments.has("dtype") ? arguments.get("dtype") : "f32";
  if (dtype != "f32" && dtype != "bf16") {
    throw UsageError(fmt::format("--dtype is '{}'; expected f32 or bf16", dtype));
  }
  options.runner.dtype = dtype_from_name(dtype);
  options.runner.kernels = kernel_choice_from(settings.kernels).value_or(KernelChoice::automatic);
  options.runner.repeats = static_cast<int>(bench::whole_number(arguments, "repeats", 20, 0, kMaxRepeats));
  const bench::ReportFiles files = bench::read_report_files(arguments, options.runner.repeats > 0);
  options.json = files.json;
  options.csv = files.csv;
  options.baseline = files.baseline;
  options.max_regression = files.max_regression;
  if (arguments.has("model")) {
    add_model(arguments, options);
  } else {
    add_ops(arguments, options);
  }
  return options;
}

}  // namespace

int run_bench(CommandContext& context) {
  for (const Benchmark& benchmark : kBenchmarks) {
    if (context.arguments.empty() || context.arguments.front() != benchmark.name) continue;
    context.arguments.erase(context.arguments.begin());
    return benchmark.run(context);
  }
  const CommandSpec spec = bench_spec();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  const Settings settings = one_device_settings(arguments);
  const BenchmarkOptions options = read_options(arguments, settings);
  const Runtime runtime = start_runtime(settings);
  for (const std::string& notice : runtime.notices) context.out.line("note     " + notice);
  return bench::run_benchmark(options, runtime, backend_for(runtime.device), context.out, context.err);
}

}  // namespace heddle::tools
