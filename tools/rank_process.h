// A training whose ranks are processes that a launcher (mpirun, torchrun, srun) has started: what one of them must know
// and do besides training.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/comm/communicator.h"
#include "nccl_comm/launch_env.h"
#include "tools/command_line.h"
#include "tools/json.h"
#include "tools/runtime.h"
#include "tools/settings.h"
#include "tools/train_options.h"

namespace heddle::tools {

// The launcher that has started this process as one of several; empty if none has. Throws: UsageError if its variables
// make no sense, contradict the flags, or this build cannot do it.
std::optional<comm::LaunchEnv> find_launcher(const ParsedArguments& arguments);

// Settings as a rank among processes has them: their number of ranks, and a CPU if the device is to be chosen for them.
void apply_launcher(const comm::LaunchEnv& launch, Settings& settings);

// Finds the other ranks, by --store or by what the launcher says, and connects: by Gloo, and for --device cuda by NCCL
// besides. Each rank of a machine has a GPU of its own then, the next of those that are named, and
// options.rank_device names it afterwards. give_up() ends the wait for them. Throws: UsageError, CommError.
std::unique_ptr<comm::Communicator> join_ranks(const comm::LaunchEnv& launch, TrainOptions& options,
                                               const std::function<bool()>& give_up = {});

// The settings with the device that join_ranks() gave this process: for start_runtime(). A run's description keeps what
// was asked for, which holds for all ranks and for a resumed run.
Settings settings_of_rank(const TrainOptions& options);

// Compares how the ranks are to train and on which data (data_to_json()). Throws: CommError naming the first
// difference, on all ranks.
void compare_with_others(comm::Communicator& communicator, const TrainOptions& options, const Json& data);

// Unless --threads or OMP_NUM_THREADS says how many, ranks that may use the same processors share them.
void share_threads(comm::Communicator& communicator, const Settings& settings, Runtime& runtime);

// The longest wait for other ranks, from --comm-timeout.
comm::CommunicatorOptions communicator_options(const Settings& settings);

}  // namespace heddle::tools
