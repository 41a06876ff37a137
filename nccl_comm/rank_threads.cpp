#include "nccl_comm/rank_threads.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/core/parallel.h"
#include "nccl_comm/blocked_signals.h"
#include "nccl_comm/inproc_communicator.h"

namespace heddle::comm {
void run_rank_threads(int world_size, const CommunicatorOptions& options,
                      const std::function<void(Communicator&)>& body) {
  run_rank_threads(make_inproc_group(world_size, options), body);
}

void run_rank_threads(std::vector<std::unique_ptr<Communicator>> ends, const std::function<void(Communicator&)>& body) {
  const auto world_size = static_cast<int>(ends.size());
  const int threads_each = std::max(1, num_threads() / world_size);
  std::mutex mutex;
  std::exception_ptr first;  // guarded by mutex
  const auto run_rank = [&](std::size_t rank) {
    // Destroyed at the end, which tells the others that this rank has left.
    const std::unique_ptr<Communicator> communicator = std::move(ends[rank]);
    try {
      const ThreadLimit limit(threads_each);
      body(*communicator);
    } catch (...) {
      std::string reason = join_text("rank ", rank, " of ", world_size, " has failed");
      try {
        throw;
      } catch (const std::exception& error) {
        reason += std::string(": ") + error.what();
      } catch (...) {
      }
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      communicator->abort(reason);
    }
  };
  std::vector<std::thread> threads;
  {
    const BlockedSignals blocked;
    try {
      for (std::size_t rank = 0; rank < ends.size(); ++rank) threads.emplace_back(run_rank, rank);
    } catch (const std::system_error& error) {
      {
        const std::lock_guard lock(mutex);
        first = std::current_exception();
      }
      // The other ends belong to their threads.
      for (std::size_t rank = threads.size(); rank < ends.size(); ++rank) {
        ends[rank]->abort(join_text("no thread for rank ", threads.size(), ": ", error.what()));
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace heddle::comm
