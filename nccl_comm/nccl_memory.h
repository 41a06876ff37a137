// Memory of NCCL's own for tensors that are exchanged again and again, and its registration with a communicator: what
// lets NCCL send from it without copies. Used by NcclLink alone; knows nothing of tensors or ranks.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "nccl_comm/nccl_communicator.h"

namespace heddle::comm {

// What the loaded library offers. Its functions are looked up by name, for it may be older than the header.
struct NcclMemoryCalls {
  ncclResult_t (*allocate)(void** data, std::size_t nbytes) = nullptr;
  ncclResult_t (*release)(void* data) = nullptr;
  ncclResult_t (*add_buffer)(ncclComm_t comm, void* data, std::size_t nbytes, void** handle) = nullptr;
  ncclResult_t (*remove_buffer)(ncclComm_t comm, void* handle) = nullptr;
  // Their handles are pointers of a type that older headers lack.
  ncclResult_t (*add_window)(ncclComm_t comm, void* data, std::size_t nbytes, void** handle, int flags) = nullptr;
  ncclResult_t (*remove_window)(ncclComm_t comm, void* handle) = nullptr;
  // What is used, and why not what was asked for: empty if it is.
  NcclMemoryUse use = NcclMemoryUse::ordinary;
  std::string shortfall;
};
NcclMemoryCalls find_nccl_memory_calls(NcclMemoryUse wanted);

// Blocks of NCCL's memory, of all links with one id in this process. Ranks that are threads share what NCCL keeps of
// each other's registrations, and NCCL ends all of it with the last of their communicators. So a block is freed when
// its last owner is gone and the last link has ended, whichever is later. From any thread.
class NcclBlocks {
 public:
  NcclBlocks() = default;
  // Those of that id.
  static std::shared_ptr<NcclBlocks> of(const ncclUniqueId& id);
  NcclBlocks(const NcclBlocks&) = delete;
  NcclBlocks& operator=(const NcclBlocks&) = delete;

  // A link's communicator begins, and has ended.
  void begin_link() noexcept;
  void end_link() noexcept;
  // On the current device, which is that of the index. Null and why, if the library refuses. Throws: std::bad_alloc.
  static std::shared_ptr<void> allocate(const std::shared_ptr<NcclBlocks>& blocks, const NcclMemoryCalls& calls,
                                        int device_index, std::size_t nbytes, std::string* refusal);

 private:
  struct Block {
    void* data = nullptr;
    int device_index = 0;
    ncclResult_t (*release)(void* data) = nullptr;
    bool given_back = false;
  };
  void give_back(void* data) noexcept;
  // Those that nobody uses any more; the caller has the mutex.
  std::list<Block> take_free() noexcept;
  static void release(const std::list<Block>& blocks) noexcept;

  std::mutex mutex_;
  int links_ = 0;            // guarded by it
  std::list<Block> blocks_;  // the same
};

// One block that one communicator knows.
struct NcclRegistration {
  void* data = nullptr;
  std::size_t nbytes = 0;
  // Where it begins if all of the communicator's lay one behind the other: the same on all ranks.
  std::int64_t begin = 0;
  // Written by the library, for a window only when it is done: registrations stay where they are.
  void* handle = nullptr;
  bool window = false;
};

// The communicator does not know it any more.
ncclResult_t deregister(const NcclMemoryCalls& calls, ncclComm_t comm, const NcclRegistration& registration);

// All of one communicator, in the order in which its ranks made them. They last as long as the communicator. One thread
// at a time.
class NcclRegistrations {
 public:
  explicit NcclRegistrations(const NcclMemoryCalls& calls) : calls_(calls) {}

  // Adds a block that the communicator does not know yet.
  void add(void* data, std::size_t nbytes);
  // Begins to make the last one known, all ranks alike.
  ncclResult_t begin_window(ncclComm_t comm);
  // The same in the older way, each rank by itself.
  ncclResult_t add_buffer(ncclComm_t comm);
  // When that is done: whether it is known. NCCL makes no windows where GPUs do not reach each other's memory, and
  // registers nothing with NCCL_LOCAL_REGISTER=0.
  bool is_known() const { return all_.back().handle != nullptr; }
  // 1 + the place of an address among all blocks, 0 if it is in none.
  std::int64_t place_of(const void* address) const noexcept;
  // Hands all over to the caller. Those stay where they are.
  std::list<NcclRegistration> take() noexcept { return std::move(all_); }

 private:
  const NcclMemoryCalls& calls_;
  std::list<NcclRegistration> all_;
};

}  // namespace heddle::comm
