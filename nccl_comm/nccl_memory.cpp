#include "nccl_comm/nccl_memory.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "engine/core/error.h"
#include "nccl_comm/nccl_check.h"

namespace heddle::comm {
namespace {

// As ncclGetVersion() numbers them. Windows are there since 2.27, but before 2.29.7 their kernels wait for the other
// ranks without a look at the flag by which ncclCommAbort() ends them: a lost rank would stop all others for ever.
constexpr int kBuffersSince = 21'900;
constexpr int kWindowsSince = 22'907;
// NCCL_WIN_COLL_SYMMETRIC: every rank passes the same place of its window.
constexpr int kSymmetric = 1;

std::string release_name(int number) {
  return join_text("NCCL ", number / 10'000, ".", number / 100 % 100, ".", number % 100);
}

// Among the libraries of this plugin.
template <class Function>
bool look_up(const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  return *function != nullptr;
}

}  // namespace

NcclMemoryCalls find_nccl_memory_calls(NcclMemoryUse wanted) {
  NcclMemoryCalls calls;
  if (wanted == NcclMemoryUse::ordinary) return calls;
  int version = 0;
  ncclGetVersion(&version);
  if (version < kBuffersSince) {
    calls.shortfall =
        join_text(release_name(version), " has no memory of its own, ", release_name(kBuffersSince), " has");
    return calls;
  }
  if (!look_up("ncclMemAlloc", &calls.allocate) || !look_up("ncclMemFree", &calls.release) ||
      !look_up("ncclCommRegister", &calls.add_buffer) || !look_up("ncclCommDeregister", &calls.remove_buffer)) {
    calls.shortfall = join_text(release_name(version), " is loaded without ncclMemAlloc and ncclCommRegister");
    return calls;
  }
  calls.use = NcclMemoryUse::registered;
  if (wanted == NcclMemoryUse::registered) return calls;
  if (version < kWindowsSince) {
    calls.shortfall = join_text("windows need ", release_name(kWindowsSince), ", for in ", release_name(version),
                                " a lost rank would stop the others for ever");
  } else if (!look_up("ncclCommWindowRegister", &calls.add_window) ||
             !look_up("ncclCommWindowDeregister", &calls.remove_window)) {
    calls.shortfall = join_text(release_name(version), " is loaded without ncclCommWindowRegister");
  } else {
    calls.use = NcclMemoryUse::windows;
  }
  return calls;
}

void NcclBlocks::begin_link() noexcept {
  const std::lock_guard lock(mutex_);
  ++links_;
}

void NcclBlocks::end_link() noexcept {
  std::list<Block> free;
  {
    const std::lock_guard lock(mutex_);
    --links_;
    free = take_free();
  }
  release(free);
}

std::shared_ptr<NcclBlocks> NcclBlocks::of(const ncclUniqueId& id) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<NcclBlocks>> by_id;
  const std::lock_guard lock(mutex);
  for (auto entry = by_id.begin(); entry != by_id.end();) {
    entry = entry->second.expired() ? by_id.erase(entry) : std::next(entry);
  }
  std::weak_ptr<NcclBlocks>& known = by_id[std::string(id.internal, sizeof id.internal)];
  std::shared_ptr<NcclBlocks> blocks = known.lock();
  if (blocks == nullptr) known = blocks = std::make_shared<NcclBlocks>();
  return blocks;
}

std::shared_ptr<void> NcclBlocks::allocate(const std::shared_ptr<NcclBlocks>& blocks, const NcclMemoryCalls& calls,
                                           int device_index, std::size_t nbytes, std::string* refusal) {
  // What may throw comes first: a block that exists is in the list.
  std::list<Block> made(1);
  if (const ncclResult_t result = calls.allocate(&made.front().data, nbytes); result != ncclSuccess) {
    *refusal = nccl_error_text(result, "ncclMemAlloc", nullptr);
    cudaGetLastError();
    return nullptr;
  }
  void* const data = made.front().data;
  made.front().device_index = device_index;
  made.front().release = calls.release;
  {
    const std::lock_guard lock(blocks->mutex_);
    blocks->blocks_.splice(blocks->blocks_.end(), made);
  }
  return std::shared_ptr<void>(data, [blocks](void* block) { blocks->give_back(block); });
}

// From whatever thread the last tensor is destroyed by.
void NcclBlocks::give_back(void* data) noexcept {
  std::list<Block> free;
  {
    const std::lock_guard lock(mutex_);
    std::find_if(blocks_.begin(), blocks_.end(), [data](const Block& block) {
      return block.data == data;
    })->given_back = true;
    free = take_free();
  }
  release(free);
}

std::list<NcclBlocks::Block> NcclBlocks::take_free() noexcept {
  std::list<Block> free;
  if (links_ > 0) return free;
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    if (block->given_back) free.splice(free.end(), blocks_, block);
    block = next;
  }
  return free;
}

void NcclBlocks::release(const std::list<Block>& blocks) noexcept {
  for (const Block& block : blocks) {
    if (cudaSetDevice(block.device_index) != cudaSuccess) continue;
    // Behind all that uses it: NCCL's work has ended, what else is queued ends by itself. An error of that work is told
    // to those who wait for it.
    if (cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();
    block.release(block.data);
  }
}

void NcclRegistrations::add(void* data, std::size_t nbytes) {
  const std::int64_t begin = all_.empty() ? 0 : all_.back().begin + static_cast<std::int64_t>(all_.back().nbytes);
  all_.push_back({.data = data, .nbytes = nbytes, .begin = begin});
}

ncclResult_t NcclRegistrations::begin_window(ncclComm_t comm) {
  NcclRegistration& last = all_.back();
  last.window = true;
  return calls_.add_window(comm, last.data, last.nbytes, &last.handle, kSymmetric);
}

ncclResult_t NcclRegistrations::add_buffer(ncclComm_t comm) {
  NcclRegistration& last = all_.back();
  last.window = false;
  return calls_.add_buffer(comm, last.data, last.nbytes, &last.handle);
}

std::int64_t NcclRegistrations::place_of(const void* address) const noexcept {
  const std::less<> before;
  for (const NcclRegistration& one : all_) {
    const auto* const begin = static_cast<const std::byte*>(one.data);
    const auto* const wanted = static_cast<const std::byte*>(address);
    if (!before(wanted, begin) && before(wanted, begin + one.nbytes)) return 1 + one.begin + (wanted - begin);
  }
  return 0;
}

ncclResult_t deregister(const NcclMemoryCalls& calls, ncclComm_t comm, const NcclRegistration& registration) {
  if (registration.handle == nullptr) return ncclSuccess;
  return (registration.window ? calls.remove_window : calls.remove_buffer)(comm, registration.handle);
}

}  // namespace heddle::comm
