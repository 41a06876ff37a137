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
namespace {

// ": why", where that can be told.
std::string reason_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return std::string(": ") + error.what();
  } catch (...) {
    return {};
  }
}

}  // namespace

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
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      try {
        communicator->abort(join_text("rank ", rank, " of ", world_size, " has failed", reason_of_current_exception()));
      } catch (...) {
        // No memory for a text: the others learn from the end of this communicator.
      }
    }
  };
  std::vector<std::thread> threads;
  {
    const BlockedSignals blocked;
    try {
      for (std::size_t rank = 0; rank < ends.size(); ++rank) threads.emplace_back(run_rank, rank);
    } catch (const std::exception& error) {
      // The other ends belong to their threads. Whatever happens here, those must be waited for.
      try {
        const std::string reason = join_text("no thread for rank ", threads.size(), " of ", world_size, ": ",
                                             error.what(), "; fewer ranks or threads may do");
        {
          const std::lock_guard lock(mutex);
          first = std::make_exception_ptr(Error(reason));
        }
        for (std::size_t rank = threads.size(); rank < ends.size(); ++rank) ends[rank]->abort(reason);
      } catch (const std::exception&) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        for (std::size_t rank = threads.size(); rank < ends.size(); ++rank) ends[rank].reset();
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace heddle::comm
