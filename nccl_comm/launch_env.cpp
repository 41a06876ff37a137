#include "nccl_comm/launch_env.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <vector>

#include "engine/core/error.h"

namespace heddle::comm {
namespace {

constexpr int kMaxRanks = 65536;

// Reads numbers, and says which variable was wrong.
class Variables {
 public:
  explicit Variables(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  bool has(const std::string& name) const { return !text(name).empty(); }
  std::string text(const std::string& name) const { return lookup_(name).value_or(""); }

  template <class Number>
  Number number(const std::string& name, Number min, Number max) const {
    const std::string value = text(name);
    Number result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    HEDDLE_CHECK(error == std::errc{} && end == value.data() + value.size() && result >= min && result <= max,
                 "the environment variable ", name, " is '", value, "', expected a number from ", min, " to ", max);
    return result;
  }

  // Rank and number of ranks, from two variables of which both or none must be there.
  std::optional<LaunchEnv> ranks(const char* launcher, const std::string& rank, const std::string& size) const {
    if (!has(rank) && !has(size)) return std::nullopt;
    HEDDLE_CHECK(has(rank) && has(size), "the environment variable ", has(rank) ? rank : size, " is set, but ",
                 has(rank) ? size : rank, " is not: ", launcher, " sets both");
    LaunchEnv env;
    env.launcher = launcher;
    env.world_size = number(size, 1, kMaxRanks);
    env.rank = number(rank, 0, kMaxRanks);
    HEDDLE_CHECK(env.rank < env.world_size, "the environment variable ", rank, " is ", env.rank, ", but ", size, " is ",
                 env.world_size, ": ranks begin with 0");
    return env;
  }

  // The number of ranks on this machine, where the launcher says it.
  bool all_here(const std::string& local_size, int world_size) const {
    return has(local_size) && number(local_size, 1, kMaxRanks) == world_size;
  }

 private:
  const EnvironmentLookup& lookup_;
};

std::optional<LaunchEnv> read_torchrun(const Variables& v) {
  std::optional<LaunchEnv> env = v.ranks("torchrun", "RANK", "WORLD_SIZE");
  if (!env) return env;
  env->one_machine = v.all_here("LOCAL_WORLD_SIZE", env->world_size);
  if (v.has("TORCHELASTIC_RUN_ID")) {
    env->job = join_text("torchrun-", v.text("TORCHELASTIC_RUN_ID"), "-", v.text("TORCHELASTIC_RESTART_COUNT"));
  }
  return env;
}

std::optional<LaunchEnv> read_open_mpi(const Variables& v) {
  std::optional<LaunchEnv> env = v.ranks("mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (!env) return env;
  env->one_machine = v.all_here("OMPI_COMM_WORLD_LOCAL_SIZE", env->world_size);
  env->job = v.text("PMIX_NAMESPACE");
  if (env->job.empty()) env->job = v.text("OMPI_MCA_ess_base_jobid");
  if (!env->job.empty()) env->job = "openmpi-" + env->job;
  return env;
}

const char* slurm_size_name(const Variables& v) {
  return v.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

std::optional<LaunchEnv> read_slurm(const Variables& v) {
  // A batch script has a rank, too, but is no step that srun has started.
  if (!v.has("SLURM_STEP_ID") && !v.has("SLURM_STEP_NODELIST")) return std::nullopt;
  if (!v.has("SLURM_PROCID")) return std::nullopt;
  std::optional<LaunchEnv> env = v.ranks("srun", "SLURM_PROCID", slurm_size_name(v));
  if (env->world_size == 1) return env;
  env->one_machine = v.text("SLURM_STEP_NUM_NODES") == "1";
  env->job = join_text("slurm-", v.text("SLURM_JOB_ID"), "-", v.text("SLURM_STEP_ID"));
  env->master_address = first_host(v.text("SLURM_STEP_NODELIST"));
  if (v.has("SLURM_JOB_ID")) {
    // Below the ports that systems give to outgoing connections; neighbouring steps and jobs have different ones.
    // Both have 32 bits; the steps that Slurm starts by itself have the highest numbers.
    const std::uint32_t job = v.number<std::uint32_t>("SLURM_JOB_ID", 0, 0xffffffffu);
    const std::uint32_t step = v.has("SLURM_STEP_ID") ? v.number<std::uint32_t>("SLURM_STEP_ID", 0, 0xffffffffu) : 0;
    env->master_port = static_cast<std::uint16_t>(15'000 + (job % 1'000 * 15 + step % 15));
  }
  return env;
}

std::optional<LaunchEnv> read_mpich(const Variables& v) {
  std::optional<LaunchEnv> env = v.ranks("mpirun (MPICH)", "PMI_RANK", "PMI_SIZE");
  if (!env) return env;
  // srun --mpi=pmi2 sets the same two variables.
  if (v.text("PMI_RANK") == v.text("SLURM_PROCID") && v.text("PMI_SIZE") == v.text(slurm_size_name(v))) {
    if (std::optional<LaunchEnv> slurm = read_slurm(v)) return slurm;
  }
  env->one_machine = v.all_here("MPI_LOCALNRANKS", env->world_size);
  // All ranks of a machine are children of one process of the launcher.
  env->job = join_text("mpich-", ::getppid());
  return env;
}

void read_master(const Variables& v, LaunchEnv& env) {
  const bool address = v.has("MASTER_ADDR"), port = v.has("MASTER_PORT");
  if (!address && !port) return;
  HEDDLE_CHECK(address && port, "the environment variable ", address ? "MASTER_ADDR" : "MASTER_PORT", " is set, but ",
               address ? "MASTER_PORT" : "MASTER_ADDR", " is not");
  env.master_address = v.text("MASTER_ADDR");
  int number = v.number("MASTER_PORT", 1, 65535);
  // The process that torchrun leaves running uses that port itself.
  if (v.text("TORCHELASTIC_USE_AGENT_STORE") == "True") number = number == 65535 ? number - 1 : number + 1;
  env.master_port = static_cast<std::uint16_t>(number);
}

}  // namespace

std::optional<LaunchEnv> read_launch_env(const EnvironmentLookup& lookup) {
  const Variables v(lookup);
  std::vector<LaunchEnv> found;
  for (const auto read : {read_torchrun, read_open_mpi, read_mpich}) {
    if (std::optional<LaunchEnv> env = read(v)) found.push_back(std::move(*env));
  }
  // torchrun itself may have been started by another launcher, once a machine.
  const bool nested = v.has("TORCHELASTIC_RUN_ID");
  for (std::size_t i = 1; i < found.size() && !nested; ++i) {
    HEDDLE_CHECK(found[0].rank == found[i].rank && found[0].world_size == found[i].world_size,
                 "the environment says rank ", found[0].rank, " of ", found[0].world_size, " as of ", found[0].launcher,
                 ", and rank ", found[i].rank, " of ", found[i].world_size, " as of ", found[i].launcher);
  }
  std::optional<LaunchEnv> env;
  if (!found.empty()) {
    env = found[0];
  } else {
    env = read_slurm(v);
  }
  if (env) read_master(v, *env);
  return env;
}

std::optional<LaunchEnv> read_launch_env() {
  return read_launch_env([](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const std::size_t close = list.find(']', bracket);
  if (close == std::string::npos) return {};
  const std::string inside = list.substr(bracket + 1, close - bracket - 1);
  const std::string behind = list.substr(close + 1, list.find(',', close) - close - 1);
  return list.substr(0, bracket) + inside.substr(0, inside.find_first_of(",-")) + behind;
}

}  // namespace heddle::comm
