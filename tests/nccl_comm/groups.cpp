#include "tests/nccl_comm/groups.h"

#include <exception>
#include <mutex>
#include <thread>

#include "nccl_comm/gloo_communicator.h"
#include "nccl_comm/inproc_communicator.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/support/devices.h"

namespace heddle::testing {
namespace {

using Ends = std::vector<std::unique_ptr<comm::Communicator>>;

Ends make_gloo_group(int world_size, const comm::CommunicatorOptions& options) {
  HEDDLE_CHECK(world_size >= 1, "a group of ", world_size, " ranks");
  const auto memory = comm::make_store_memory();
  Ends ends(static_cast<std::size_t>(world_size));
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto store = comm::make_memory_store(memory);
        ends[static_cast<std::size_t>(rank)] =
            comm::make_gloo_communicator(*store, {.rank = rank, .world_size = world_size, .communicator = options});
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  return ends;
}

}  // namespace

const std::vector<GroupKind>& group_kinds() {
  static const std::vector<GroupKind> kinds = [] {
    std::vector<GroupKind> all{{"in-process", test_devices(), comm::make_inproc_group}};
    if (comm::why_no_gloo().empty()) all.push_back({"gloo", {Device::cpu()}, make_gloo_group});
    return all;
  }();
  return kinds;
}

void run_group(const GroupKind& kind, int world_size, const comm::CommunicatorOptions& options,
               const std::function<void(comm::Communicator&)>& body) {
  comm::run_rank_threads(kind.make(world_size, options), body);
}

std::vector<std::string> comm_errors(const GroupKind& kind, int world_size, const comm::CommunicatorOptions& options,
                                     const std::function<void(comm::Communicator&)>& body) {
  RankResults results(world_size);
  run_group(kind, world_size, options, noting_errors(results, body));
  return results.texts();
}

}  // namespace heddle::testing
