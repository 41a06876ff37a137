// What the CUDA plugin holds of NCCL, or holds in its place in a build without. Called by libheddle through the
// plugin's entry.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "nccl_comm/nccl_communicator.h"

namespace heddle::comm {

// Contracts: engine/device/cuda_plugin_abi.h.
int nccl_library_version();
std::string nccl_library_memory();
void make_nccl_communicators(NcclOptions* ranks, std::size_t count, std::unique_ptr<Communicator>* made);

}  // namespace heddle::comm
