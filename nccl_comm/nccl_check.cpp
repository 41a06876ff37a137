#include "nccl_comm/nccl_check.h"

#include "engine/core/error.h"

namespace heddle::comm {
namespace {

const char* name_of(ncclResult_t code) {
  switch (code) {
    case ncclSuccess: return "ncclSuccess";
    case ncclUnhandledCudaError: return "ncclUnhandledCudaError";
    case ncclSystemError: return "ncclSystemError";
    case ncclInternalError: return "ncclInternalError";
    case ncclInvalidArgument: return "ncclInvalidArgument";
    case ncclInvalidUsage: return "ncclInvalidUsage";
    case ncclRemoteError: return "ncclRemoteError";
    case ncclInProgress: return "ncclInProgress";
    default: return "an unknown code";
  }
}

}  // namespace

std::string nccl_error_text(ncclResult_t code, const char* call, ncclComm_t comm) {
  const char* const last = ncclGetLastError(comm);
  std::string text = join_text("NCCL: ", call, " failed with ", name_of(code), " (", ncclGetErrorString(code));
  if (last != nullptr && *last != '\0') text += join_text("; last error: ", last);
  return text + ")";
}

void check_nccl(ncclResult_t code, const char* call, ncclComm_t comm) {
  if (code == ncclSuccess || code == ncclInProgress) [[likely]]
    return;
  throw CommError(nccl_error_text(code, call, comm));
}

}  // namespace heddle::comm
