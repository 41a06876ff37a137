// Turns error codes of NCCL into exceptions. The only place that knows their names.
#pragma once

#include <nccl.h>

#include <string>

namespace heddle::comm {

// "NCCL: ncclAllReduce failed with ncclInvalidUsage (invalid usage ...; last error: ...)". comm: the communicator of
// the call, or null.
std::string nccl_error_text(ncclResult_t code, const char* call, ncclComm_t comm);

// Returns on ncclSuccess, and on ncclInProgress, which a call of a communicator that does not block gives. Throws:
// CommError with that text.
void check_nccl(ncclResult_t code, const char* call, ncclComm_t comm = nullptr);

}  // namespace heddle::comm
