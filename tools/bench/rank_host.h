// Where the ranks of a benchmark run: as threads of this process, in new groups of any size and backend, or as the
// processes that a launcher has started, of which this is one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "tools/command_line.h"
#include "tools/runtime.h"

namespace heddle::tools::bench {

// Names of what ranks that are threads can exchange tensors of the CPU with: "in-process", and "gloo" if this build has
// it.
std::vector<std::string> thread_backends();

class RankHost {
 public:
  // Ranks as threads: tensors are on the first device, or on one device each.
  RankHost(const comm::CommunicatorOptions& options, std::vector<Device> devices)
      : options_(options), devices_(std::move(devices)) {}
  // This process is a rank.
  RankHost(std::unique_ptr<comm::Communicator> processes, Device device)
      : devices_{device}, processes_(std::move(processes)) {}

  bool are_processes() const noexcept { return processes_ != nullptr; }
  // Null if ranks are threads.
  comm::Communicator* processes() const noexcept { return processes_.get(); }
  // Whether this process prints and writes.
  bool reports() const noexcept { return processes_ == nullptr || processes_->rank() == 0; }
  // Backends and numbers of ranks that there can be: what the processes are, or all that threads can.
  std::vector<std::string> backends() const;
  // Most ranks that a backend can have here.
  int most_ranks(const std::string& backend) const;
  // Of a rank's tensors.
  Device device_of(const std::string& backend, int rank) const;

  // Calls body on every rank of a group, with as many threads for each as num_threads() gives to so many, and returns
  // when all are done. Of processes a group has all, or only the first one: the others wait for it without a body.
  // Throws: what body throws; UsageError for another number of processes or an unknown backend.
  void run(const std::string& backend, int ranks, const std::function<void(comm::Communicator&)>& body) const;

 private:
  comm::CommunicatorOptions options_;
  std::vector<Device> devices_;
  std::unique_ptr<comm::Communicator> processes_;
};

// By the launcher, if one has started this process, which joins the others then; runtime: its threads are shared with
// them. Flags: --store, --comm-timeout, --device. Throws: UsageError, CommError.
struct StartedRanks {
  Settings settings;
  Runtime runtime;
  std::unique_ptr<RankHost> host;
};
StartedRanks start_ranks(const ParsedArguments& arguments);
// The flags that start_ranks() reads.
std::vector<FlagSpec> rank_flags();

}  // namespace heddle::tools::bench
