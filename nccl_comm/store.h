// Where ranks that do not know each other yet leave notes: keys and values that all of them can read. Used to find each
// other at the start of a training, and not after that.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace heddle::comm {

// Neither call waits for another rank. Keys are letters, digits and "-./:". From one thread at a time.
class Store {
 public:
  virtual ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Stores a value, or replaces it. Throws: CommError, IoError.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Empty if nobody has stored it yet. Throws: CommError, IoError.
  virtual std::optional<std::string> get(const std::string& key) = 0;
  // Tells the store that this rank needs it no more: what the group left behind may go.
  virtual void finish() noexcept {}
  // "the folder /dev/shm/heddle-0-17", for messages.
  virtual std::string where() const = 0;
  // The own address under which the ranks on other machines may find this one; empty if the store does not know.
  virtual std::string own_address() const { return {}; }

 protected:
  Store() = default;
};

// For waits that can be given up. Throws: CommError if cancelled() says so.
void throw_if_cancelled(const std::function<bool()>& cancelled);

// The notes of ranks in one process. Every rank takes its own end of the same memory.
struct StoreMemory;
std::shared_ptr<StoreMemory> make_store_memory();
std::unique_ptr<Store> make_memory_store(std::shared_ptr<StoreMemory> memory);

// One file a key, in a folder that all ranks see, which is made if need be. remove_folder: finish() removes it; for
// rank 0 and a folder that nothing else uses. Throws: IoError.
std::unique_ptr<Store> make_file_store(const std::string& folder, bool remove_folder = false);

struct TcpStoreOptions {
  std::string host;
  std::uint16_t port = 0;
  // Rank 0 answers the others from a thread of its own: on all addresses of its machine, unless host is "localhost" or
  // a loopback address.
  bool serve = false;
  // Longest wait for the server to appear, and for an answer.
  std::chrono::milliseconds timeout{60'000};
  // Asked while it waits for the server to appear; true ends the wait. Empty: never.
  std::function<bool()> cancelled = {};
};
// Throws: CommError if the port is taken (serve), nobody listens there within the time, or it is cancelled;
// InvalidArgument unless timeout > 0.
std::unique_ptr<Store> make_tcp_store(const TcpStoreOptions& options);

}  // namespace heddle::comm
