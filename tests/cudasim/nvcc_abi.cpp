// What the host code that nvcc makes calls besides the CUDA runtime: files register their kernels when they are loaded,
// and `kernel<<<...>>>(...)` is a call of a stub. The prototypes are those of crt/host_runtime.h and
// crt/device_functions.h, which only nvcc can include. Of no use to files that the host's compiler compiled.
#include <map>
#include <vector>

#include "tests/cudasim/api.h"
#include "tests/cudasim/kernel_list.h"

using namespace cudasim;

namespace {

// A loaded file. Loaded files survive reset(), as they are no doing of a test.
struct Module {
  std::shared_ptr<const FatBinary> binary;
  bool complete = false;
};

std::map<void**, Module>& modules() {
  static auto* table = new std::map<void**, Module>;
  return *table;
}

Module& module_of(void** handle, const char* function) {
  const auto found = modules().find(handle);
  if (found == modules().end()) die("%s: no such fat binary", function);
  return found->second;
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared_nbytes = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> t_configurations;

}  // namespace

CUDART void** __cudaRegisterFatBinary(void* wrapper) {
  const Lock lock;
  auto** const handle = static_cast<void**>(wrapper);
  if (modules().count(handle) != 0) die("__cudaRegisterFatBinary: registered twice");
  modules()[handle].binary = std::make_shared<FatBinary>(read_fat_binary(wrapper));
  return handle;
}

CUDART void __cudaRegisterFunction(void** handle, const char* stub, char*, const char* mangled, int, uint3*, uint3*,
                                   dim3*, dim3*, int*) {
  const Lock lock;
  const Module& module = module_of(handle, "__cudaRegisterFunction");
  if (module.complete) die("__cudaRegisterFunction after __cudaRegisterFatBinaryEnd");
  add_stub(stub, mangled, module.binary);
}

// The host's code of a kernel has variables of its own. Host code cannot reach either: the functions that copy to a
// variable are not there.
CUDART void __cudaRegisterVar(void** handle, char*, char*, const char*, int, std::size_t, int, int) {
  const Lock lock;
  module_of(handle, "__cudaRegisterVar");
}

CUDART void __cudaRegisterFatBinaryEnd(void** handle) {
  const Lock lock;
  module_of(handle, "__cudaRegisterFatBinaryEnd").complete = true;
}

// When the file is unloaded or the program ends.
CUDART void __cudaUnregisterFatBinary(void** handle) {
  const Lock lock;
  remove_stubs(module_of(handle, "__cudaUnregisterFatBinary").binary.get());
  modules().erase(handle);
}

CUDART char __cudaInitModule(void**) { return 1; }

CUDART unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_nbytes, cudaStream_t stream) {
  t_configurations.push_back({grid, block, shared_nbytes, stream});
  return 0;
}

CUDART cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_nbytes, void* stream) {
  if (t_configurations.empty()) return set_last_error(cudaErrorMissingConfiguration);
  const Configuration configuration = t_configurations.back();
  t_configurations.pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_nbytes = configuration.shared_nbytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

// A kernel's handle is the address of its stub.
CUDART cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* stub) {
  const Lock lock;
  if (find_kernel(stub) == nullptr) return set_last_error(cudaErrorInvalidDeviceFunction);
  *handle = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}

CUDART cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 grid, dim3 block, void** arguments,
                                      std::size_t shared_nbytes, cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(handle), grid, block, arguments, shared_nbytes, stream);
}
