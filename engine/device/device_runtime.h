// Memory, streams and events of one device behind one virtual interface. Implementations: CpuRuntime (here) and the
// CUDA plugin's. It must not know tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device.h"

namespace heddle {

// Bytes of device memory.
struct MemoryInfo {
  std::size_t free_nbytes = 0;
  std::size_t total_nbytes = 0;
};

// A point in a stream. Copies share it; destroyed with the last copy.
struct Event {
  std::shared_ptr<void> handle;
};

// Host memory that a device reaches by itself, so that kernels can report to the host without a copy. Freed with the
// last copy of `owner`.
struct HostBuffer {
  std::shared_ptr<void> owner;
  void* host = nullptr;    // for the host
  void* device = nullptr;  // the same bytes, for kernels
  std::size_t nbytes = 0;
};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual Device device() const noexcept = 0;
  // Model name of the hardware, for reports.
  virtual std::string description() const = 0;

  // Raw memory, aligned to at least 256 bytes; contents are undefined. The caching allocator is the only caller.
  // Returns nullptr when the device has not enough memory. Throws: DeviceError on any other failure.
  virtual void* allocate(std::size_t nbytes) = 0;
  virtual void deallocate(void* data, std::size_t nbytes) noexcept = 0;
  virtual MemoryInfo memory_info() const = 0;
  // Zero-filled host memory, aligned to at least 64 bytes, which all devices of this kind reach; page-locked on a GPU,
  // so that copies from and to it do not wait. Throws: OutOfMemory, DeviceError.
  virtual HostBuffer allocate_host(std::size_t nbytes);

  // Copies nbytes in stream order; one side is this device, the other this device or the CPU. Host memory that is not
  // pinned is safe to reuse on return. Does not wait for the copy otherwise.
  virtual void copy_async(void* destination, Device destination_device, const void* source, Device source_device,
                          std::size_t nbytes, Stream stream) = 0;
  // Sets nbytes bytes to value in stream order.
  virtual void fill_async(void* destination, unsigned char value, std::size_t nbytes, Stream stream) = 0;

  virtual Stream create_stream() = 0;
  virtual void destroy_stream(Stream stream) noexcept = 0;
  virtual Event record(Stream stream) = 0;
  // Work queued on stream from now on runs after event. Does not block the host.
  virtual void wait(Stream stream, const Event& event) = 0;
  // True if all work queued on the stream is done. Does not block. Throws: DeviceError if some of it failed.
  virtual bool is_done(Stream stream) = 0;
  // Blocks the host until all work of the stream is done. Throws: DeviceError if some of it failed.
  virtual void synchronize(Stream stream) = 0;
};

class CachingAllocator;

// The runtime of a device. The CPU's exists always. Throws: InvalidArgument if the device was not registered.
DeviceRuntime& runtime_for(Device device);
// The caching allocator that serves all tensors of the device.
CachingAllocator& allocator_for(Device device);
// Makes a device known; it stays so until the program ends. Used by the CUDA plugin's loader.
// Throws: InvalidArgument if the device is registered already.
void register_device(std::unique_ptr<DeviceRuntime> runtime);
bool is_registered(Device device) noexcept;

// The stream on which ops of the calling thread queue their work for this device.
Stream current_stream(Device device);
// Replaces the calling thread's current stream while it lives.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

}  // namespace heddle
