// Ranks that are processes, on one machine or several: tensors of the CPU over TCP, by the library Gloo.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <heddle/comm/communicator.h>
#include "store.h"

namespace heddle::comm {

// Empty if this build has Gloo, else what is missing, as a sentence.
std::string why_no_gloo();

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  CommunicatorOptions communicator;
  // Longest time in which all ranks find each other and connect.
  std::chrono::milliseconds connect_timeout{60'000};
  // Address under which the other ranks reach this one; empty: the loopback if all ranks are on one machine, else the
  // one that the store knows, else the first of this machine.
  std::string address;
  // Asked every few milliseconds until all ranks are there; true ends the wait. Empty: never.
  std::function<bool()> cancelled = {};
};

// Finds the other ranks through the store, which all of them give, and connects to each of them. Sums are added in rank
// order by one rank per element, as in a group of threads, and have the same bits. A call blocks its thread until its
// tensors are there; the tensors are the CPU's. Every wait ends after the timeout: the error names the call and the
// ranks that did not come; a rank whose process ends is noticed at once. The store is not needed afterwards.
// Throws: CommError if not all ranks come or connect within the time, or it is cancelled; NotSupported in a build
// without Gloo; InvalidArgument unless 0 <= rank < world_size and both times are above 0.
std::unique_ptr<Communicator> make_gloo_communicator(Store& store, const GlooOptions& options);

// The ends of a group of threads in this process, by rank, that exchange over the loopback as processes would: to
// compare and to test; make_inproc_group() is what threads train with. Throws: as above.
std::vector<std::unique_ptr<Communicator>> make_gloo_group(int world_size, const CommunicatorOptions& options = {});

}  // namespace heddle::comm
