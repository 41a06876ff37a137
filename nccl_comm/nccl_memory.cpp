#include "nccl_comm/nccl_memory.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>

#include "engine/core/error.h"
#include "nccl_comm/nccl_check.h"

namespace heddle::comm {
namespace {

// As ncclGetVersion() numbers them.
constexpr int kBuffersSince = 21'900;
constexpr int kWindowsSince = 22'700;
// NCCL_WIN_COLL_SYMMETRIC: every rank passes the same place of its window, as all buckets of gradients are.
constexpr int kSymmetric = 1;

std::string release(int number) { return join_text(number / 10'000, ".", number / 100 % 100, ".", number % 100); }

// Among the libraries of this plugin.
template <class Function>
bool look_up(const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  return *function != nullptr;
}

}  // namespace

NcclMemoryCalls find_nccl_memory_calls() {
  NcclMemoryCalls calls;
  int version = 0;
  ncclGetVersion(&version);
  if (version < kBuffersSince) {
    calls.missing = join_text("NCCL ", release(version), " has no memory of its own, ", release(kBuffersSince), " has");
  } else if (!look_up("ncclMemAlloc", &calls.allocate) || !look_up("ncclMemFree", &calls.release) ||
             !look_up("ncclCommRegister", &calls.add_buffer) || !look_up("ncclCommDeregister", &calls.remove_buffer)) {
    calls.missing = join_text("NCCL ", release(version), " is loaded without ncclMemAlloc and ncclCommRegister");
  }
  if (!calls.missing.empty()) {
    calls.description = "ordinary memory: " + calls.missing;
    return calls;
  }
  if (version < kWindowsSince) {
    calls.description = join_text("registered buffers (windows need NCCL ", release(kWindowsSince), ")");
  } else if (look_up("ncclCommWindowRegister", &calls.add_window) &&
             look_up("ncclCommWindowDeregister", &calls.remove_window)) {
    calls.description = "windows";
  } else {
    calls.add_window = nullptr;
    calls.description = "registered buffers (the library is loaded without ncclCommWindowRegister)";
  }
  return calls;
}

void* NcclMemory::allocate(std::size_t nbytes, std::string* refusal) {
  *refusal = calls_.missing;
  if (calls_.allocate == nullptr) return nullptr;
  void* data = nullptr;
  if (const ncclResult_t result = calls_.allocate(&data, nbytes); result != ncclSuccess) {
    *refusal = nccl_error_text(result, "ncclMemAlloc", nullptr);
    cudaGetLastError();
    return nullptr;
  }
  blocks_.push_back({.data = data, .nbytes = nbytes});
  return data;
}

NcclMemory::Block& NcclMemory::find(void* data) {
  return *std::find_if(blocks_.begin(), blocks_.end(), [data](const Block& block) { return block.data == data; });
}

const NcclMemory::Block& NcclMemory::find(void* data) const {
  return *std::find_if(blocks_.begin(), blocks_.end(), [data](const Block& block) { return block.data == data; });
}

ncclResult_t NcclMemory::begin_window(ncclComm_t comm, void* data) {
  Block& block = find(data);
  block.window = true;
  return calls_.add_window(comm, data, block.nbytes, &block.handle, kSymmetric);
}

bool NcclMemory::is_window(void* data) const {
  const Block& block = find(data);
  return block.window && block.handle != nullptr;
}

ncclResult_t NcclMemory::add_buffer(ncclComm_t comm, void* data) {
  Block& block = find(data);
  block.window = false;
  return calls_.add_buffer(comm, data, block.nbytes, &block.handle);
}

void NcclMemory::give_back(void* data) noexcept { find(data).given_back = true; }

void NcclMemory::remove(ncclComm_t comm, Block& block) noexcept {
  if (comm == nullptr || block.handle == nullptr) return;
  // A failure leaves it to the end of the communicator.
  block.window ? calls_.remove_window(comm, block.handle) : calls_.remove_buffer(comm, block.handle);
  block.handle = nullptr;
}

void NcclMemory::free_given_back(ncclComm_t comm) noexcept {
  if (std::none_of(blocks_.begin(), blocks_.end(), [](const Block& block) { return block.given_back; })) return;
  // Behind all that uses them; an error of that work is told to those who wait for it.
  if (cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();
  blocks_.remove_if([&](Block& block) {
    if (!block.given_back) return false;
    remove(comm, block);
    calls_.release(block.data);
    return true;
  });
}

void NcclMemory::remove_all(ncclComm_t comm) noexcept {
  for (Block& block : blocks_) remove(comm, block);
}

void NcclMemory::forget_registrations() noexcept {
  for (Block& block : blocks_) block.handle = nullptr;
}

}  // namespace heddle::comm
