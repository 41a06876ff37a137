// What ThreadSanitizer finds in a program on the simulated CUDA, even where the values come out right. Only in builds
// with it (-Db_sanitize=thread).
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace cudasim::test {
namespace {

// A planted race, run in an order of operations and threads in which its values are right.
struct Race {
  const char* name;
  const char* stream_order;
  const char* thread_order;
  bool reported;
};

}  // namespace

TEST_CASE("races between streams, between threads of a block, and with the host are reported; right programs are not") {
  const Race race =
      GENERATE(Race{"missing_event", "eager", "forward", true}, Race{"missing_event", "lazy", "forward", true},
               Race{"missing_barrier", "eager", "reverse", true}, Race{"missing_barrier", "eager", "forward", true},
               Race{"pinned_read", "eager", "forward", true}, Race{"right_program", "eager", "forward", false},
               Race{"right_program", "lazy", "reverse", false}, Race{"right_program", "random:3", "forward", false});
  CAPTURE(race.name, race.stream_order, race.thread_order);
  const heddle::test::ProcessResult result =
      heddle::test::run_process(CUDASIM_PLANTED_FAULTS, {.arguments = {race.name},
                                                         .environment = {{"CUDASIM_STREAM_ORDER", race.stream_order},
                                                                         {"CUDASIM_THREAD_ORDER", race.thread_order},
                                                                         {"TSAN_OPTIONS", "exitcode=66"}},
                                                         .timeout = std::chrono::seconds(600)});
  const bool reported = result.err.find("WARNING: ThreadSanitizer: data race") != std::string::npos;
  INFO(result.err.substr(0, 2000));
  CHECK(reported == race.reported);
  CHECK(result.exit_code == (race.reported ? 66 : 0));
}

}  // namespace cudasim::test
