// Rank threads of a test: assertions are the main thread's, so ranks collect what they find.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "nccl_comm/rank_threads.h"

namespace heddle::testing {

// Texts of all ranks, by rank.
class RankResults {
 public:
  explicit RankResults(int world_size) : texts_(static_cast<std::size_t>(world_size)) {}
  void add(int rank, const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_[static_cast<std::size_t>(rank)] += text;
  }
  const std::vector<std::string>& texts() const noexcept { return texts_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

// Body, whose CommError becomes its rank's text. Both must outlive what is returned.
inline std::function<void(comm::Communicator&)> noting_errors(RankResults& results,
                                                              const std::function<void(comm::Communicator&)>& body) {
  return [&](comm::Communicator& communicator) {
    try {
      body(communicator);
    } catch (const CommError& error) {
      results.add(communicator.rank(), error.what());
    }
  };
}

// Runs body on every rank of an in-process group; returns the message of the CommError that each rank met, empty if
// none.
inline std::vector<std::string> comm_errors(int world_size, const comm::CommunicatorOptions& options,
                                            const std::function<void(comm::Communicator&)>& body) {
  RankResults results(world_size);
  comm::run_rank_threads(world_size, options, noting_errors(results, body));
  return results.texts();
}

}  // namespace heddle::testing
