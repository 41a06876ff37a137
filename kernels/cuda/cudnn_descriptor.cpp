#include "kernels/cuda/cudnn_descriptor.h"

#include <array>
#include <string>

#include "engine/core/error.h"
#include "kernels/launch/check.h"

namespace heddle::cuda {

void check_cudnn(cudnnStatus_t status, const char* call, CallPlace place) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  std::array<char, 512> explanation{};
  cudnnGetLastErrorString(explanation.data(), explanation.size());
  if (is_not_supported(status)) throw NotSupported(join_text("cuDNN: ", call, ": ", explanation.data()));
  throw_device_error("cuDNN", call, cudnnGetErrorString(status), explanation.data(), place);
}

std::vector<CudnnDescriptor> CudnnDescriptor::get_descriptors(cudnnBackendAttributeName_t attribute,
                                                              cudnnBackendDescriptorType_t type) const {
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(handle_, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              "cudnnBackendGetAttribute");
  std::vector<CudnnDescriptor> descriptors;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i) handles.push_back(descriptors.emplace_back(type).get());
  if (count > 0) {
    // cuDNN fills in the descriptors that it is given.
    check_cudnn(
        cudnnBackendGetAttribute(handle_, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, handles.data()),
        "cudnnBackendGetAttribute");
  }
  while (static_cast<std::int64_t>(descriptors.size()) > count) descriptors.pop_back();
  return descriptors;
}

}  // namespace heddle::cuda
