// What launchers of processes leave in the environment, and what makes no sense there.
#include "nccl_comm/launch_env.h"

#include <map>

#include "engine/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using heddle::test::contains;
using heddle::test::message_of;

namespace {

using Environment = std::map<std::string, std::string>;

std::optional<comm::LaunchEnv> read(const Environment& environment) {
  return comm::read_launch_env([&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Environment& environment) {
  return message_of<InvalidArgument>([&] { read(environment); });
}

}  // namespace

TEST_CASE("without a launcher there is nothing to read") {
  CHECK(!read({}));
  // Inside a batch script of Slurm, before any srun.
  CHECK(!read({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
}

TEST_CASE("torchrun's variables") {
  const Environment both{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "host1"}, {"MASTER_PORT", "29500"}};
  const auto env = read(both);
  REQUIRE(env);
  CHECK(env->launcher == "torchrun");
  CHECK(env->rank == 1);
  CHECK(env->world_size == 4);
  CHECK(!env->one_machine);
  CHECK(env->master_address == "host1");
  CHECK(env->master_port == 29500);
  Environment with_agent = both;
  with_agent["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  CHECK(read(with_agent)->master_port == 29501);
}

TEST_CASE("mpirun's variables, of Open MPI and MPICH") {
  const auto open_mpi = read({{"OMPI_COMM_WORLD_RANK", "2"},
                              {"OMPI_COMM_WORLD_SIZE", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                              {"PMIX_NAMESPACE", "17"}});
  REQUIRE(open_mpi);
  CHECK(open_mpi->launcher == "mpirun (Open MPI)");
  CHECK(open_mpi->rank == 2);
  CHECK(open_mpi->one_machine);
  CHECK(open_mpi->job == "openmpi-17");
  CHECK(open_mpi->master_port == 0);
  const auto mpich = read({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}});
  REQUIRE(mpich);
  CHECK(mpich->launcher == "mpirun (MPICH)");
  CHECK(mpich->world_size == 2);
  CHECK(!mpich->one_machine);
}

TEST_CASE("srun's variables") {
  const auto env = read({{"SLURM_PROCID", "3"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_STEP_ID", "1"},
                         {"SLURM_JOB_ID", "1234"},
                         {"SLURM_STEP_NODELIST", "node[03-04]"}});
  REQUIRE(env);
  CHECK(env->launcher == "srun");
  CHECK(env->rank == 3);
  CHECK(env->world_size == 4);
  CHECK(env->master_address == "node03");
  CHECK(env->master_port == 15000 + 234 * 15 + 1);
  CHECK(comm::first_host("a,b") == "a");
  CHECK(comm::first_host("single") == "single");
  CHECK(comm::first_host("b1,a[03-05]") == "b1");
  CHECK(comm::first_host("a[7,9-10]x.net,b1") == "a7x.net");
  CHECK(comm::first_host("") == "");
}

TEST_CASE("the one process of Slurm's interactive step, whose number is one of the highest, is one rank") {
  Environment step{{"SLURM_STEP_ID", "4294967290"}, {"SLURM_PROCID", "0"},    {"SLURM_STEP_NUM_TASKS", "1"},
                   {"SLURM_STEP_NODELIST", "n[1]"}, {"SLURM_JOB_ID", "1234"}, {"SLURM_NTASKS", "4"}};
  const auto env = read(step);
  REQUIRE(env);
  CHECK(env->world_size == 1);
  step["SLURM_STEP_NUM_TASKS"] = "2";
  CHECK(read(step)->master_port == 15000 + 234 * 15 + 10);
}

TEST_CASE("srun --mpi=pmi2 is srun, although it sets MPICH's variables") {
  Environment step{{"PMI_RANK", "1"},
                   {"PMI_SIZE", "2"},
                   {"SLURM_STEP_ID", "0"},
                   {"SLURM_PROCID", "1"},
                   {"SLURM_JOB_ID", "1234"},
                   {"SLURM_STEP_NUM_TASKS", "2"},
                   {"SLURM_NTASKS", "16"},
                   {"SLURM_STEP_NUM_NODES", "2"},
                   {"SLURM_STEP_NODELIST", "node[03-04]"}};
  const auto env = read(step);
  REQUIRE(env);
  CHECK(env->launcher == "srun");
  CHECK(env->rank == 1);
  CHECK(env->world_size == 2);
  CHECK(env->job == "slurm-1234-0");
  CHECK(env->master_address == "node03");
  CHECK(env->master_port == 15000 + 234 * 15);
  // MPICH's own mpirun inside a job, where srun has started one process for it.
  step["SLURM_STEP_NUM_TASKS"] = "1";
  step["SLURM_PROCID"] = "0";
  CHECK(read(step)->launcher == "mpirun (MPICH)");
  // Nor is the machine that srun was called on, which may be none of the ranks', a place to meet.
  step = {{"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "1"},
          {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_JOB_ID", "1234"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};
  CHECK(read(step)->master_address.empty());
}

TEST_CASE("an inner launcher counts before the one that has started it") {
  const auto env = read({{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_NTASKS", "1"}});
  REQUIRE(env);
  CHECK(env->rank == 1);
  const auto torch = read({{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"TORCHELASTIC_RUN_ID", "x"},
                           {"RANK", "5"},
                           {"WORLD_SIZE", "8"}});
  REQUIRE(torch);
  CHECK(torch->rank == 5);
}

TEST_CASE("nonsense and contradictions name variable and value") {
  CHECK(contains(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK is 2, but WORLD_SIZE is 2"));
  CHECK(contains(refusal({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), "RANK is 'one'"));
  CHECK(contains(refusal({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), "RANK is '-1'"));
  CHECK(contains(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE is '0'"));
  CHECK(contains(refusal({{"RANK", "0"}}), "WORLD_SIZE is not"));
  CHECK(contains(refusal({{"WORLD_SIZE", "2"}}), "RANK is not"));
  CHECK(contains(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "x"}}), "MASTER_PORT is not"));
  CHECK(contains(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "x"}, {"MASTER_PORT", "70000"}}),
                 "MASTER_PORT is '70000'"));
  const std::string both =
      refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  CHECK(contains(both, "rank 0 of 2 as of torchrun"));
  CHECK(contains(both, "rank 1 of 2 as of mpirun (Open MPI)"));
}
