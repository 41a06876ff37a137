// In the place of NCCL in a plugin that is built without it.
#include "engine/core/error.h"
#include "nccl_comm/nccl_plugin.h"

namespace heddle::comm {

int nccl_library_version() { return 0; }

std::string nccl_library_memory() { return {}; }

void make_nccl_communicators(NcclOptions*, std::size_t, std::unique_ptr<Communicator>*) {
  throw NotSupported(why_no_nccl());
}

}  // namespace heddle::comm
