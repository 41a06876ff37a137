// Memory, streams, events and recordings of one device behind one virtual interface. Implementations: CpuRuntime (here)
// and the CUDA plugin's. It must not know tensors.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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

// What reports say about a device. Empty where it does not apply.
struct DeviceProperties {
  std::string name;        // model of the hardware
  std::string capability;  // of a GPU: "9.0"
  std::size_t memory_nbytes = 0;
  int multiprocessors = 0;
  // What a GPU can do at most: to and from its memory, and in multiply-adds (two operations each; bf16: on tensor
  // cores). 0: unknown.
  double bytes_per_second = 0;
  double f32_flops_per_second = 0;
  double bf16_flops_per_second = 0;
  std::size_t cache_nbytes = 0;  // of the largest cache
  // Name and version of driver and libraries.
  std::vector<std::pair<std::string, std::string>> versions;
};

// What a thread queued on devices of one kind: kernels and calls of maths libraries, and the bytes that they were said
// to read and write.
struct WorkCounts {
  std::uint64_t launches = 0;
  std::uint64_t read_nbytes = 0;
  std::uint64_t written_nbytes = 0;
};

// How many pieces of work a recording consists of. A call of a maths library is as many kernels as it started.
struct GraphSize {
  std::int64_t kernels = 0;
  std::int64_t copies = 0;
  std::int64_t fills = 0;
  std::int64_t others = 0;
};

// Recorded work that is launched as a whole. Destroyed only when its launches are done.
class ExecutableGraph {
 public:
  virtual ~ExecutableGraph() = default;
  // Queues all of the work. Does not wait.
  virtual void launch(Stream stream) = 0;
  virtual GraphSize size() const noexcept { return {}; }
};

// Records what the calling thread queues on a stream instead of doing it.
class StreamRecorder {
 public:
  virtual ~StreamRecorder() = default;
  // From now on work queued on the stream is recorded. Until the end the thread must not wait for the device.
  virtual void begin(Stream stream) = 0;
  // Ends the recording. Throws: DeviceError if something was done that cannot be recorded; the stream is usable then.
  virtual std::shared_ptr<ExecutableGraph> end(Stream stream) = 0;
  // Ends it without a result; the stream is usable afterwards.
  virtual void abandon(Stream stream) noexcept = 0;
};

// Measures from when a device comes to start() to when it comes to stop(), on a GPU by its own clock. If it runs out of
// work in between, that time counts too: what is shorter than its queueing is measured by queueing it several times.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void start(Stream stream) = 0;
  // Seconds since start(), when all work queued in between is done. Blocks until then.
  virtual double stop(Stream stream) = 0;
};

// Is asked while a host waits for a device whose work may never end by itself: that of a communicator whose peer is
// gone.
class WaitWatch {
 public:
  virtual ~WaitWatch() = default;
  // The host has waited so long. Throws what is wrong; work that would never end has been ended then, if this is the
  // thread that uses the communicator.
  virtual void waiting(std::chrono::steady_clock::duration waited) = 0;
};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual Device device() const noexcept = 0;
  // Model name of the hardware, for reports.
  virtual std::string description() const = 0;
  // True for a device that only imitates hardware, for tests: it must say so wherever it is reported.
  virtual bool is_simulated() const noexcept { return false; }
  virtual DeviceProperties properties() const;

  // Raw memory, aligned to at least 256 bytes; contents are undefined. The caching allocator is the only caller.
  // Returns nullptr when the device has not enough memory. Throws: DeviceError on any other failure.
  virtual void* allocate(std::size_t nbytes) = 0;
  virtual void deallocate(void* data, std::size_t nbytes) noexcept = 0;
  virtual MemoryInfo memory_info() const = 0;
  // Zero-filled host memory, aligned to at least 64 bytes, which all devices of this kind reach; page-locked on a GPU,
  // so that copies from and to it do not wait. Throws: OutOfMemory, DeviceError.
  virtual HostBuffer allocate_host(std::size_t nbytes);

  // Copies nbytes in stream order; one side is this device, the other any device. Host memory that is not page-locked
  // is safe to reuse on return. Does not wait for the copy otherwise.
  virtual void copy_async(void* destination, Device destination_device, const void* source, Device source_device,
                          std::size_t nbytes, Stream stream) = 0;
  // Sets nbytes bytes to value in stream order.
  virtual void fill_async(void* destination, unsigned char value, std::size_t nbytes, Stream stream) = 0;

  // The stream of threads that have chosen none with a StreamGuard. Always the same.
  virtual Stream default_stream() { return {device(), nullptr}; }
  // Another stream. One that was destroyed may be handed out again.
  virtual Stream create_stream() = 0;
  virtual void destroy_stream(Stream stream) noexcept = 0;
  virtual Event record(Stream stream) = 0;
  // Work queued on stream from now on runs after event, which may be another device's. Does not block the host.
  virtual void wait(Stream stream, const Event& event) = 0;
  // True if all work queued on the stream is done. Does not block. Throws: DeviceError if some of it failed.
  virtual bool is_done(Stream stream) = 0;
  // Blocks the host until all work of the stream is done. Throws: DeviceError if some of it failed.
  virtual void synchronize(Stream stream) = 0;

  // Who is asked by every wait for this device, from any thread. The watch must live until remove_watch() returns.
  void add_watch(WaitWatch& watch);
  void remove_watch(WaitWatch& watch) noexcept;
  // To be called again and again by a host that polls for work of this device. Throws: what a watch throws.
  void waiting(std::chrono::steady_clock::duration waited);
  bool is_watched() const noexcept;

  // For a program that launches kernels of its own, right before each launch and on the thread that makes it: the
  // device becomes the one that the thread's native calls go to, and error messages name the launch. Such work goes to
  // current_stream(device()), whose `handle` is the native stream (cudaStream_t), and is recorded like any other.
  // name: text that lives as long as the program.
  virtual void prepare_launch(const char*) {}
  // What the calling thread queued since it started. Work that is recorded counts when it is recorded; a launch of the
  // recording counts as one more.
  virtual WorkCounts work_counts() const noexcept { return {}; }
  // One for this device. The base's looks at the host's clock.
  virtual std::unique_ptr<Stopwatch> make_stopwatch();

  // Records streams of this device; nullptr if it cannot.
  virtual StreamRecorder* recorder() noexcept { return nullptr; }

  // Marks what the calling thread does between the two calls for a profiler; nothing if none is attached. Nests.
  virtual void begin_range(const char*) noexcept {}
  virtual void end_range() noexcept {}

 private:
  // Recursive: what a watch does may wait for the device, too.
  mutable std::recursive_mutex watch_mutex_;
  std::vector<WaitWatch*> watches_;  // guarded by watch_mutex_
};

// The runtime of a device. The CPU's exists always. Throws: InvalidArgument if the device was not registered.
DeviceRuntime& runtime_for(Device device);
// Makes a device known; it stays so until the program ends. Used by the CUDA plugin.
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

// A profiler's range while it lives.
class ProfileRange {
 public:
  // name: text that lives as long as the range.
  ProfileRange(DeviceRuntime& runtime, const char* name) noexcept : runtime_(runtime) { runtime_.begin_range(name); }
  ~ProfileRange() { runtime_.end_range(); }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  DeviceRuntime& runtime_;
};

}  // namespace heddle
