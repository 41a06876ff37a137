#include "tools/rank_process.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/core/file.h"
#include "engine/core/parallel.h"
#include "nccl_comm/gloo_communicator.h"
#include "nccl_comm/machine_identity.h"
#include "nccl_comm/nccl_communicator.h"
#include "nccl_comm/text_exchange.h"
#include "tools/rank_group.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// A folder that only this user can have made, for ranks on one machine.
std::string job_folder(const std::string& job) {
  std::string base = "/dev/shm";
  if (::access(base.c_str(), W_OK | X_OK) != 0) base = variable("TMPDIR").empty() ? "/tmp" : variable("TMPDIR");
  std::string name = job;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  const std::string folder = fmt::format("{}/heddle-{}-{}", base, ::geteuid(), name);
  struct stat state {};
  if ((::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) || ::lstat(folder.c_str(), &state) != 0) {
    throw IoError(folder, "cannot be made for the ranks to meet in: " + errno_text(errno));
  }
  if (!S_ISDIR(state.st_mode) || state.st_uid != ::geteuid()) {
    throw IoError(folder, "belongs to somebody else; name another place for the ranks to meet with --store");
  }
  return folder;
}

// How long a rank waits for the others to come, and what ends the wait.
struct Patience {
  std::chrono::milliseconds timeout;
  std::function<bool()> cancelled;
};

std::unique_ptr<comm::Store> tcp_store(const std::string& host, std::uint16_t port, const comm::LaunchEnv& launch,
                                       const Patience& patience) {
  return comm::make_tcp_store({.host = host,
                               .port = port,
                               .serve = launch.rank == 0,
                               .timeout = patience.timeout,
                               .cancelled = patience.cancelled});
}

std::unique_ptr<comm::Store> named_store(const std::string& name, const comm::LaunchEnv& launch,
                                         const Patience& patience) {
  const std::string file = "file:", tcp = "tcp:";
  if (name.starts_with(file) && name.size() > file.size()) return comm::make_file_store(name.substr(file.size()));
  if (name.starts_with(tcp)) {
    const std::size_t colon = name.rfind(':');
    std::string host = colon > tcp.size() ? name.substr(tcp.size(), colon - tcp.size()) : std::string();
    if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
    const std::string port = name.substr(colon + 1);
    std::uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (!host.empty() && error == std::errc{} && end == port.data() + port.size() && number > 0) {
      return tcp_store(host, number, launch, patience);
    }
  }
  throw UsageError(fmt::format(
      "--store is '{}'; expected file:FOLDER, or tcp:HOST:PORT with the machine of rank 0 and a free port", name));
}

std::unique_ptr<comm::Store> open_store(const comm::LaunchEnv& launch, const TrainOptions& options,
                                        const Patience& patience) {
  if (!options.store.empty()) return named_store(options.store, launch, patience);
  if (variable("MASTER_ADDR").empty() && launch.one_machine && !launch.job.empty()) {
    return comm::make_file_store(job_folder(launch.job), launch.rank == 0);
  }
  if (!launch.master_address.empty() && launch.master_port != 0) {
    return tcp_store(launch.master_address, launch.master_port, launch, patience);
  }
  throw UsageError(
      fmt::format("{} does not say where its ranks can meet: set MASTER_ADDR and MASTER_PORT for all of them to the "
                  "machine of rank 0 and a free port, or give --store tcp:HOST:PORT",
                  launch.launcher));
}

// The folder of a job goes, however joining ends.
class FinishedStore {
 public:
  explicit FinishedStore(comm::Store& store) : store_(store) {}
  ~FinishedStore() { store_.finish(); }
  FinishedStore(const FinishedStore&) = delete;
  FinishedStore& operator=(const FinishedStore&) = delete;

 private:
  comm::Store& store_;
};

// The same text for ranks that may use the same processors of the same machine.
std::string processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string text = comm::machine_identity() + " ";
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return text;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) text += fmt::format("{},", i);
  }
  return text;
}

// Throws: UsageError if there are no such GPUs for so many ranks, no NCCL, or a wrong setting of it.
std::vector<Device> check_gpus(const std::string& name, int ranks) {
  std::vector<Device> devices = named_cuda_devices(name, ranks);
  if (const std::string missing = comm::why_no_nccl(); !missing.empty()) {
    throw UsageError(fmt::format("--device {} with ranks in several processes: {}", name, missing));
  }
  check_nccl_memory_setting();
  return devices;
}

// The GPU of this rank: of those that --device names, or of all, the one whose place is that of the rank among those of
// its machine. Throws: UsageError, CommError.
Device own_gpu(comm::Communicator& hosts, const std::string& name) {
  const std::vector<std::string> machines =
      comm::all_gather_text(hosts, comm::machine_identity(), Device::cpu(), "machines");
  const std::string& own = machines[static_cast<std::size_t>(hosts.rank())];
  const auto ranks = static_cast<int>(std::count(machines.begin(), machines.end(), own));
  const auto place = static_cast<std::size_t>(std::count(machines.begin(), machines.begin() + hosts.rank(), own));
  const std::vector<Device> devices = check_gpus(name, ranks);
  // A launcher may have given each process GPUs of its own, of which it sees no other; NCCL finds those that share one.
  const bool shown_one = devices.size() == 1 && name == "cuda";
  if (place >= devices.size() && !shown_one) {
    throw UsageError(fmt::format("--device {}: rank {} is number {} of {} on this machine, for which there {}", name,
                                 hosts.rank(), place + 1, ranks,
                                 devices.size() == 1 ? "is 1 GPU" : fmt::format("are {} GPUs", devices.size())));
  }
  const Device device = shown_one ? devices.front() : devices[place];
  require_usable(device, name);
  return device;
}

}  // namespace

std::optional<comm::LaunchEnv> find_launcher(const ParsedArguments& arguments) {
  std::optional<comm::LaunchEnv> launch;
  try {
    launch = comm::read_launch_env();
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
  if (launch && launch->world_size == 1) launch.reset();
  if (!launch) {
    if (arguments.has("store")) {
      throw UsageError(
          "--store is for ranks in several processes, but no launcher has started this one: none of RANK, "
          "OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_STEP_ID is set for more than one rank");
    }
    return launch;
  }
  if (arguments.has("ranks") && arguments.get("ranks") != std::to_string(launch->world_size)) {
    throw UsageError(fmt::format("--ranks {} does not go with {}, which has started {} ranks; leave it out",
                                 arguments.get("ranks"), launch->launcher, launch->world_size));
  }
  if (const std::string missing = comm::why_no_gloo(); !missing.empty()) {
    throw UsageError(fmt::format("{} has started {} ranks: {}", launch->launcher, launch->world_size, missing));
  }
  return launch;
}

void apply_launcher(const comm::LaunchEnv& launch, Settings& settings) {
  settings.ranks = launch.world_size;
  if (settings.device == "auto") settings.device = "cpu";
  // What can be known before the others are there.
  if (settings.device.starts_with("cuda")) check_gpus(settings.device, launch.world_size);
}

std::unique_ptr<comm::Communicator> join_ranks(const comm::LaunchEnv& launch, TrainOptions& options,
                                               const std::function<bool()>& give_up) {
  const comm::CommunicatorOptions times = communicator_options(options.settings);
  const Patience patience{times.timeout, give_up};
  const std::unique_ptr<comm::Store> store = open_store(launch, options, patience);
  const FinishedStore finished(*store);
  const auto join_hosts = [&](const comm::CommunicatorOptions& waits) {
    return comm::make_gloo_communicator(*store, {.rank = launch.rank,
                                                 .world_size = launch.world_size,
                                                 .communicator = waits,
                                                 .connect_timeout = patience.timeout,
                                                 .address = variable("HEDDLE_COMM_ADDRESS"),
                                                 .cancelled = patience.cancelled});
  };
  std::unique_ptr<comm::Communicator> hosts = join_hosts(times);
  // What is no GPU is refused where a single process would.
  if (!options.settings.device.starts_with("cuda")) return hosts;
  try {
    const Device device = own_gpu(*hosts, options.settings.device);
    options.rank_device = device.to_string();
    std::unique_ptr<comm::Communicator> roll_call = join_hosts(comm::roll_call_options(times));
    // A rank that cannot have a GPU has ended the group of the others by now.
    hosts->barrier("the GPUs of all ranks");
    return comm::make_nccl_communicator(
        {.device = device, .communicator = times, .hosts = std::move(hosts), .roll_call = std::move(roll_call)});
  } catch (const std::exception& error) {
    if (hosts) hosts->abort(fmt::format("rank {} of {}: {}", launch.rank, launch.world_size, error.what()));
    throw;
  }
}

Settings settings_of_rank(const TrainOptions& options) {
  Settings settings = options.settings;
  if (!options.rank_device.empty()) settings.device = options.rank_device;
  return settings;
}

void compare_with_others(comm::Communicator& communicator, const TrainOptions& options, const Json& data) {
  // What may differ from machine to machine, and changes no result.
  const std::set<std::string> own = {"comm-timeout", "data-dir", "device", "threads"};
  std::string text = options.resumed ? "a run to resume\n" : "a new run\n";
  for (const Setting& row : setting_table()) {
    if (own.count(row.name) == 0) text += fmt::format("--{} {}\n", row.name, to_text(get_value(options.settings, row)));
  }
  for (const Json& file : data["files"]) {
    // The checksum is that of what is packed in a .gz.
    std::filesystem::path name = std::filesystem::path(file["path"].get<std::string>()).filename();
    if (name.extension() == ".gz") name = name.stem();
    text += fmt::format("data {} with {} items and crc32 {}\n", name.string(), file["items"].get<std::int64_t>(),
                        file["crc32"].get<std::string>());
  }
  const auto difference = comm::compare_text(communicator, text, Device::cpu(), "settings and data");
  if (!difference) return;
  throw CommError(fmt::format("the ranks disagree: rank 0 has {}, rank {} has {}", difference->of_first,
                              difference->rank, difference->of_other));
}

void share_threads(comm::Communicator& communicator, const Settings& settings, Runtime& runtime) {
  const std::string own = processors();
  const std::vector<std::string> all = comm::all_gather_text(communicator, own, Device::cpu(), "processors");
  const auto sharing = static_cast<int>(std::count(all.begin(), all.end(), own));
  if (settings.threads > 0 || sharing == 1 || variable("OMP_NUM_THREADS") != "") return;
  set_num_threads(std::max(1, num_threads() / sharing));
  runtime.threads = num_threads();
  runtime.threads_source += fmt::format(", shared by {} ranks", sharing);
}

comm::CommunicatorOptions communicator_options(const Settings& settings) {
  return {.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(settings.comm_timeout * 1000))};
}

}  // namespace heddle::tools
