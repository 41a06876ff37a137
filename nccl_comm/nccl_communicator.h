// Ranks with a GPU each, as threads of one process or as processes: tensors of GPUs by NVIDIA's library NCCL, those of
// the CPU by a group of hosts. Its code is in the CUDA plugin.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <heddle/comm/communicator.h>

namespace heddle::comm {

// Empty if there are GPUs and the CUDA plugin is built with NCCL, else what is missing, as a sentence.
std::string why_no_nccl();
// Of the library that is loaded: "2.28.9"; empty if there is none.
std::string nccl_version();
// Where exchanged tensors (Communicator::make_exchanged()) lie by setting and library, and why in nothing better; empty
// if there is none.
std::string nccl_memory();

// Memory of exchanged tensors: as all tensors have it; NCCL's own, registered by each rank (from NCCL 2.19 on); NCCL's
// own, registered as symmetric windows by all ranks together (from 2.29.7 on). What a library is too old for becomes
// the one before, and ranks that differ all use the first of theirs.
enum class NcclMemoryUse : std::uint8_t { ordinary, registered, windows };
// What the environment variable HEDDLE_NCCL_MEMORY asks for; ordinary if it is not set, for no GPU has run the others.
// Throws: InvalidArgument naming the variable if it is none of these words.
NcclMemoryUse nccl_memory_setting();

// What a rank's communicator is made of.
struct NcclOptions {
  Device device;  // the rank's own GPU
  CommunicatorOptions communicator;
  // Two groups of all ranks' hosts, in-process or Gloo, with this rank's end of each. The first carries tensors of the
  // CPU and NCCL's id, and compares the calls. The second, whose time is short (roll_call_timeout()), finds out which
  // ranks are late once a GPU has not finished in time.
  std::unique_ptr<Communicator> hosts, roll_call;
  // Of exchanged tensors, if the library can and the other ranks have no less.
  NcclMemoryUse memory = nccl_memory_setting();
};

// The time of the second group: a part of the whole time, which a wait for the GPU leaves for it.
CommunicatorOptions roll_call_options(const CommunicatorOptions& options);

// Connects to the other ranks, which all do the same. What differs from other communicators:
//
// - Calls outside of a recorded step (see Communicator::can_be_recorded()) block their thread until the GPU is done.
//   Before NCCL is called the hosts compare the call, number of elements, dtype and root, so that ranks that differ or
//   are late are found as in any other group, for the time of one message. In steady training all calls are in recorded
//   steps, where the hosts have compared them when they were recorded, and it costs nothing.
// - While it lives it watches over its GPU: the host's waits for the GPU throw CommError when NCCL reports an error,
// the
//   group has ended, or the GPU is not done within the timeout. NCCL's work on the GPU is ended then.
// - Sums are added in NCCL's own order: the same bits on every rank, and bf16 may be rounded after each addition. A
//   maximum of floats is found from the gathered tensors, for NCCL's loses NaN.
// - Recorded steps with its calls are destroyed before it, and are launched by the thread that makes the calls, after
//   check_alive().
// - Only the thread that makes the calls, and the destructor, are ever inside NCCL's communicator. abort() from another
//   thread leaves a note; every wait of the first one finds it within milliseconds.
//
// Throws: CommError if not all ranks connect within the timeout, or NCCL fails; NotSupported if why_no_nccl();
// InvalidArgument unless the device is a GPU and both groups have the same rank, and as nccl_memory_setting().
std::unique_ptr<Communicator> make_nccl_communicator(NcclOptions options);

// The ends of a group of threads in this process, by rank: rank i on devices[i]. NCCL wants them all different.
// Throws: as above.
std::vector<std::unique_ptr<Communicator>> make_nccl_group(const std::vector<Device>& devices,
                                                           const CommunicatorOptions& options = {});

}  // namespace heddle::comm
