// Faults that end the process: each in a child process, with a report that names it.
#include <csignal>

#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace cudasim::test {
namespace {

struct Planted {
  const char* name;
  // What standard error says.
  const char* report;
};

heddle::test::ProcessResult run_planted(const char* name, const char* stream_order) {
  return heddle::test::run_process(CUDASIM_PLANTED_FAULTS, {.arguments = {name},
                                                            .environment = {{"CUDASIM_STREAM_ORDER", stream_order},
                                                                            {"CUDASIM_THREAD_ORDER", "forward"}}});
}

}  // namespace

TEST_CASE("a fault that hardware answers with nonsense or a hang ends the process and is named") {
  const Planted planted =
      GENERATE(Planted{"divergent_barrier", "divergent barrier"}, Planted{"missing_lanes", "for lanes that never come"},
               Planted{"ended_lanes", "names lanes that have ended"},
               Planted{"barrier_against_shuffle", "wait in a warp operation"},
               Planted{"outside_own_mask", "leaves it out"}, Planted{"host_read", "host code touched device memory"},
               Planted{"host_write", "host code touched device memory"}, Planted{"missing_rank", "1 of 2 ranks came"},
               Planted{"crossed_collectives", "cyclic wait"}, Planted{"undeclared_view", "has not declared"});
  CAPTURE(planted.name);
  const heddle::test::ProcessResult result = run_planted(planted.name, "lazy");
  CHECK(result.signal == SIGABRT);
  CHECK(result.out.empty());
  CHECK(result.err.find(planted.report) != std::string::npos);
}

TEST_CASE("one element written past the end is found, with and without AddressSanitizer") {
  const heddle::test::ProcessResult result = run_planted("overrun", "lazy");
  CHECK((result.exit_code != 0 || result.signal != 0));
  const bool named =
      result.err.find("overrun") != std::string::npos || result.err.find("AddressSanitizer") != std::string::npos;
  CHECK(named);
}

TEST_CASE("the environment sets the order of operations") {
  const auto run = [](const char* order) { return run_planted("missing_event", order); };
  CHECK(run("lazy").out == "2\nsurvived\n");
  CHECK(run("eager").out == "3\nsurvived\n");
  CHECK(run("random:7").exit_code == 0);
  const heddle::test::ProcessResult unknown = run("sometimes");
  CHECK(unknown.signal == SIGABRT);
  CHECK(unknown.err.find("CUDASIM_STREAM_ORDER=sometimes, expected lazy") != std::string::npos);
}

}  // namespace cudasim::test
