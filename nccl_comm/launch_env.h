// What a launcher of processes (mpirun, torchrun, srun) says to each of them in its environment. No library of theirs
// is needed, and none is linked.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace heddle::comm {

struct LaunchEnv {
  std::string launcher;  // "mpirun (Open MPI)"
  int rank = 0;
  int world_size = 1;
  bool one_machine = false;  // the launcher says that all ranks are on this one
  // Where rank 0 can be found; empty and 0 if the launcher does not say.
  std::string master_address;
  std::uint16_t master_port = 0;
  // All ranks of this start have it, and no other start at the same time; empty if the launcher has none.
  std::string job;
};

// Value of an environment variable; empty if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Empty if nothing says that a launcher has started this process as one of several ranks. torchrun's variables count
// before those of mpirun, and those before srun's, since each may have been started by the next. Throws:
// InvalidArgument naming variable and value if they make no sense or contradict each other.
std::optional<LaunchEnv> read_launch_env(const EnvironmentLookup& lookup);
// From this process's environment.
std::optional<LaunchEnv> read_launch_env();

// "a03" of "a[03-05,9],b1", Slurm's way to write a list of machines.
std::string first_host(const std::string& list);

}  // namespace heddle::comm
