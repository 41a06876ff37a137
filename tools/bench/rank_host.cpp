#include "tools/bench/rank_host.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/core/parallel.h"
#include "engine/core/text.h"
#include "nccl_comm/gloo_communicator.h"
#include "nccl_comm/inproc_communicator.h"
#include "nccl_comm/nccl_communicator.h"
#include "nccl_comm/rank_threads.h"
#include "tools/bench/arguments.h"
#include "tools/rank_group.h"
#include "tools/rank_process.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

constexpr std::int64_t kMaxRanks = 1024;

}  // namespace

std::vector<std::string> thread_backends() {
  std::vector<std::string> names{"in-process"};
  if (comm::why_no_gloo().empty()) names.emplace_back("gloo");
  return names;
}

std::vector<std::string> RankHost::backends() const {
  if (processes_ != nullptr) return {processes_->name()};
  if (devices_.front().is_cpu()) return thread_backends();
  // Gloo moves tensors of the CPU.
  std::vector<std::string> names{"in-process"};
  if (comm::why_no_nccl().empty()) names.emplace_back("nccl");
  return names;
}

int RankHost::most_ranks(const std::string& backend) const {
  constexpr int kMany = 1024;
  return backend == "nccl" && processes_ == nullptr ? static_cast<int>(devices_.size()) : kMany;
}

Device RankHost::device_of(const std::string& backend, int rank) const {
  return backend == "nccl" && processes_ == nullptr ? devices_[static_cast<std::size_t>(rank)] : devices_.front();
}

void RankHost::run(const std::string& backend, int ranks, const std::function<void(comm::Communicator&)>& body) const {
  if (processes_ == nullptr) {
    if (backend == "in-process") return comm::run_rank_threads(ranks, options_, body);
    if (backend == "gloo") return comm::run_rank_threads(comm::make_gloo_group(ranks, options_), body);
    if (backend == "nccl") {
      check_nccl_memory_setting();
      return comm::run_rank_threads(comm::make_nccl_group({devices_.begin(), devices_.begin() + ranks}, options_),
                                    body);
    }
    throw UsageError(unknown_name_message("backend", backend, backends()));
  }
  if (ranks == processes_->world_size()) return body(*processes_);
  if (ranks != 1) {
    throw UsageError(fmt::format("{} processes were started; a group of {} of them cannot be made",
                                 processes_->world_size(), ranks));
  }
  if (processes_->rank() == 0) {
    // Alone it may use the threads of one rank, as each of several does.
    comm::run_rank_threads(1, options_, body);
  }
  processes_->barrier("the end of a measurement on one rank");
}

std::vector<FlagSpec> rank_flags() {
  return {{"device", "NAME", "auto, cpu, or cuda[:i,j]", "cpu"},
          {"threads", "N", "CPU threads of all ranks together", "as many as this process may use"},
          {"comm-timeout", "X", "seconds that a rank waits for another one", "60"},
          {"store", "PLACE", "where ranks that a launcher starts meet, file:FOLDER or tcp:HOST:PORT",
           "as the launcher says"}};
}

StartedRanks start_ranks(const ParsedArguments& arguments) {
  StartedRanks started;
  // Also checks the flags before anybody waits.
  started.settings = machine_settings(arguments);
  if (!arguments.has("device")) started.settings.device = "cpu";
  if (arguments.has("comm-timeout")) {
    set_from_text(started.settings, *find_setting("comm-timeout"), arguments.get("comm-timeout"));
  }
  const std::optional<comm::LaunchEnv> launch = find_launcher(arguments);
  if (!launch) {
    for (const std::string& n : parse_list(arguments.has("ranks") ? arguments.get("ranks") : "2", "ranks")) {
      started.settings.ranks = std::max(started.settings.ranks, parse_whole_number(n, "ranks", 1, kMaxRanks));
    }
    started.runtime = start_runtime(started.settings);
    started.host = std::make_unique<RankHost>(communicator_options(started.settings), started.runtime.devices);
    return started;
  }
  apply_launcher(*launch, started.settings);
  TrainOptions options;
  options.settings = started.settings;
  options.store = arguments.get("store");
  std::unique_ptr<comm::Communicator> processes = join_ranks(*launch, options);
  started.settings = settings_of_rank(options);
  started.runtime = start_runtime(started.settings);
  share_threads(*processes, started.settings, started.runtime);
  started.host = std::make_unique<RankHost>(std::move(processes), started.runtime.device);
  return started;
}

}  // namespace heddle::tools::bench
