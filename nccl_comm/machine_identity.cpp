#include "nccl_comm/machine_identity.h"

#include <unistd.h>

#include <fstream>

namespace heddle::comm {

std::string machine_identity() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(host) + "/" + boot;
}

}  // namespace heddle::comm
