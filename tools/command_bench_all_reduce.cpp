// `heddle bench all-reduce`: do the ranks' sums agree with what they must be, and how fast are they.
#include <fmt/format.h>

#include <algorithm>

#include "engine/core/text.h"
#include "tools/bench/all_reduce_run.h"
#include "tools/command_bench.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

using bench::AllReduceCase;
using bench::RankHost;

constexpr std::int64_t kMaxRepeats = 100000, kMaxRanks = 1024;
constexpr std::size_t kMaxNbytes = std::size_t{1} << 32;

CommandSpec spec_of_command() {
  CommandSpec spec{.name = "heddle bench all-reduce",
                   .summary = "sums over ranks: first whether every element is right, then time and bytes/s",
                   .example =
                       "heddle bench all-reduce --ranks 2,4 --dtype f32,bf16 --sizes 4KiB,180KiB,16MiB\n"
                       "  heddle bench all-reduce --backend gloo --json gloo.json\n"
                       "  mpirun -n 2 heddle bench all-reduce",
                   .flags = {{"sizes", "LIST", "bytes a rank gives to a call", "4KiB,64KiB,1MiB,16MiB"},
                             {"dtype", "LIST", "f32, bf16, i64", "f32"},
                             {"op", "LIST", "sum, max", "sum"},
                             {"backend", "LIST", "in-process, gloo, nccl", "all that there are"},
                             {"ranks", "LIST", "numbers of ranks, as threads; a launcher starts processes", "2"},
                             {"repeats", "N", "times the clock is read; 0: check only", "20"}}};
  for (const std::vector<FlagSpec>& more : {bench::rank_flags(), bench::report_flags("a case")}) {
    spec.flags.insert(spec.flags.end(), more.begin(), more.end());
  }
  return spec;
}

std::vector<AllReduceCase> read_cases(const ParsedArguments& arguments, const RankHost& host) {
  std::vector<std::size_t> sizes;
  const std::string size_list = arguments.has("sizes") ? arguments.get("sizes") : "4KiB,64KiB,1MiB,16MiB";
  for (const std::string& size : bench::parse_list(size_list, "sizes")) {
    sizes.push_back(bench::parse_nbytes(size, "sizes"));
    if (sizes.back() > kMaxNbytes) throw UsageError(fmt::format("--sizes: {} is more than 4GiB", size));
  }
  const std::vector<std::string> backends = host.backends();
  std::vector<int> ranks;
  if (host.are_processes()) {
    ranks.push_back(host.processes()->world_size());
  } else {
    for (const std::string& n : bench::parse_list(arguments.has("ranks") ? arguments.get("ranks") : "2", "ranks")) {
      ranks.push_back(static_cast<int>(bench::parse_whole_number(n, "ranks", 1, kMaxRanks)));
    }
  }
  std::vector<AllReduceCase> cases;
  for (const int n : ranks) {
    for (const std::string& dtype : bench::choices(arguments, "dtype", "f32", {"f32", "bf16", "i64"})) {
      for (const std::string& op : bench::choices(arguments, "op", "sum", {"sum", "max"})) {
        for (const std::size_t nbytes : sizes) {
          for (const std::string& backend : bench::choices(arguments, "backend", join_names(backends, ","), backends)) {
            if (n > host.most_ranks(backend)) {
              if (!arguments.has("backend")) continue;
              throw UsageError(fmt::format("--backend {}: {} ranks need a GPU each, and there are {} for them", backend,
                                           n, host.most_ranks(backend)));
            }
            const DType type = dtype_from_name(dtype);
            cases.push_back({.backend = backend,
                             .ranks = n,
                             .dtype = type,
                             .op = op == "sum" ? comm::ReduceOp::sum : comm::ReduceOp::max,
                             .numel = static_cast<std::int64_t>(std::max(nbytes / size_of(type), std::size_t{1}))});
          }
        }
      }
    }
  }
  return cases;
}

}  // namespace

int run_bench_all_reduce(CommandContext& context) {
  const CommandSpec spec = spec_of_command();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  const auto repeats = static_cast<int>(bench::whole_number(arguments, "repeats", 20, 0, kMaxRepeats));
  const bench::ReportFiles files = bench::read_report_files(arguments, repeats > 0);
  const bench::StartedRanks started = bench::start_ranks(arguments);
  const std::vector<AllReduceCase> cases = read_cases(arguments, *started.host);
  return bench::run_all_reduce(cases, *started.host, started.runtime, repeats, files, context.out, context.err);
}

}  // namespace heddle::tools
