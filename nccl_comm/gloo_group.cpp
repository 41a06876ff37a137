// Gloo between threads of one process.
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "engine/core/error.h"
#include "nccl_comm/blocked_signals.h"
#include "nccl_comm/gloo_communicator.h"

namespace heddle::comm {

std::vector<std::unique_ptr<Communicator>> make_gloo_group(int world_size, const CommunicatorOptions& options) {
  HEDDLE_CHECK(world_size >= 1, "a group of ", world_size, " ranks");
  const auto memory = make_store_memory();
  std::vector<std::unique_ptr<Communicator>> ends(static_cast<std::size_t>(world_size));
  std::mutex mutex;
  std::exception_ptr first;            // guarded by mutex
  std::atomic<bool> given_up = false;  // one end cannot be made, for which the others need not wait
  const auto fail = [&] {
    const std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
    given_up = true;
  };
  // Every end waits for the others when it is made.
  const auto make_end = [&](int rank) {
    try {
      const std::unique_ptr<Store> store = make_memory_store(memory);
      ends[static_cast<std::size_t>(rank)] = make_gloo_communicator(
          *store, {.rank = rank, .world_size = world_size, .communicator = options, .cancelled = [&given_up] {
                     return given_up.load();
                   }});
    } catch (...) {
      fail();
    }
  };
  std::vector<std::thread> threads;
  {
    const BlockedSignals blocked;
    try {
      for (int rank = 0; rank < world_size; ++rank) threads.emplace_back(make_end, rank);
    } catch (const std::system_error&) {
      fail();
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  return ends;
}

}  // namespace heddle::comm
