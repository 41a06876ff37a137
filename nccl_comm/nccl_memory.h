// Memory of NCCL's own for tensors that are exchanged again and again, and its registration with a communicator: what
// lets NCCL send from it without copies. Used by NcclLink alone, which sees to it that one thread at a time is in here;
// knows nothing of tensors or ranks.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <list>
#include <string>

namespace heddle::comm {

// What the loaded library offers. Its functions are looked up by name, for it may be older than the header.
struct NcclMemoryCalls {
  ncclResult_t (*allocate)(void** data, std::size_t nbytes) = nullptr;
  ncclResult_t (*release)(void* data) = nullptr;
  ncclResult_t (*add_buffer)(ncclComm_t comm, void* data, std::size_t nbytes, void** handle) = nullptr;
  ncclResult_t (*remove_buffer)(ncclComm_t comm, void* handle) = nullptr;
  // Null in a library without windows. Their handles are pointers of a type that older headers lack.
  ncclResult_t (*add_window)(ncclComm_t comm, void* data, std::size_t nbytes, void** handle, int flags) = nullptr;
  ncclResult_t (*remove_window)(ncclComm_t comm, void* handle) = nullptr;
  // Why there are none of the functions; empty if there are.
  std::string missing;
  // Where they let tensors lie, or why only in ordinary memory, as a phrase.
  std::string description;
};
NcclMemoryCalls find_nccl_memory_calls();

// Blocks of memory on one GPU, which is the calling thread's current one in every call.
class NcclMemory {
 public:
  NcclMemory() = default;
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;

  // Null and why, if the library refuses.
  void* allocate(std::size_t nbytes, std::string* refusal);
  // Whether registering makes a window: then all ranks do it alike, and it is not done when the call returns.
  bool makes_windows() const { return calls_.add_window != nullptr; }
  // Begins to make a block known to the communicator.
  ncclResult_t begin_window(ncclComm_t comm, void* data);
  // When that is done: whether it is a window. The library makes none where GPUs do not reach each other's memory.
  bool is_window(void* data) const;
  // Makes a block known in the older way, each rank by itself.
  ncclResult_t add_buffer(ncclComm_t comm, void* data);

  // The block is not used any more, but the GPU may still be at it.
  void give_back(void* data) noexcept;
  // Blocks that were given back, once the GPU is done with them: out of the communicator (null: it has ended, and with
  // it what it knew), and free.
  void free_given_back(ncclComm_t comm) noexcept;
  // The communicator is about to leave in order: it knows no block any more.
  void remove_all(ncclComm_t comm) noexcept;
  // The communicator has ended by force.
  void forget_registrations() noexcept;

 private:
  struct Block {
    void* data = nullptr;
    std::size_t nbytes = 0;
    // Written by the library, for a window only when it is done: blocks stay where they are.
    void* handle = nullptr;
    bool window = false;
    bool given_back = false;
  };
  Block& find(void* data);
  const Block& find(void* data) const;
  void remove(ncclComm_t comm, Block& block) noexcept;

  NcclMemoryCalls calls_ = find_nccl_memory_calls();
  std::list<Block> blocks_;
};

}  // namespace heddle::comm
