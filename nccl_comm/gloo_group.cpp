// Gloo between threads of one process.
#include <exception>
#include <mutex>
#include <thread>

#include "engine/core/error.h"
#include "nccl_comm/gloo_communicator.h"

namespace heddle::comm {

std::vector<std::unique_ptr<Communicator>> make_gloo_group(int world_size, const CommunicatorOptions& options) {
  HEDDLE_CHECK(world_size >= 1, "a group of ", world_size, " ranks");
  const auto memory = make_store_memory();
  std::vector<std::unique_ptr<Communicator>> ends(static_cast<std::size_t>(world_size));
  std::mutex mutex;
  std::exception_ptr first;  // guarded by mutex
  // Every end waits for the others when it is made.
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const std::unique_ptr<Store> store = make_memory_store(memory);
        ends[static_cast<std::size_t>(rank)] =
            make_gloo_communicator(*store, {.rank = rank, .world_size = world_size, .communicator = options});
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

}  // namespace heddle::comm
