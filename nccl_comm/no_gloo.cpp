#include "engine/core/error.h"
#include "nccl_comm/gloo_communicator.h"

namespace heddle::comm {

std::string why_no_gloo() {
  return "ranks in several processes need the library Gloo, which this build does not have (Debian package: "
         "libgloo-dev; then build Heddle again)";
}

std::unique_ptr<Communicator> make_gloo_communicator(Store& /*store*/, const GlooOptions& /*options*/) {
  throw NotSupported(why_no_gloo());
}

}  // namespace heddle::comm
