// Memory, streams, events, copies and recordings of one GPU. Contracts: engine/device/device_runtime.h. Made by the
// plugin's entry, used by the engine and by the CUDA backend. It must not know tensors or maths libraries.
//
// Nothing touches the GPU before the first call that needs it, so that GPUs that are not chosen hold no memory of this
// process. Calls make the GPU the calling thread's current CUDA device and leave it so. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/device/device_runtime.h"

namespace heddle::cuda {

class EventPool;
class StagingBuffers;
class CudaRecorder;

// Wait for what was queued on the stream or before the event, if somebody watches the device: then no wait may be
// without an end. They ask the watches again and again. Where nobody watches they return at once; the caller's own wait
// follows. Throw: DeviceError, what a watch throws.
void wait_watched(DeviceRuntime& runtime, cudaStream_t stream);
void wait_watched(DeviceRuntime& runtime, cudaEvent_t event);

// See cuda_plugin.h.
bool is_page_locked(const void* host);

class CudaRuntime final : public DeviceRuntime {
 public:
  // built_for: the GPU generations that kernels were compiled for, as text for error messages.
  CudaRuntime(int index, std::string built_for);
  ~CudaRuntime() override;

  Device device() const noexcept override { return device_; }
  std::string description() const override;
  bool is_simulated() const noexcept override { return simulated_; }
  DeviceProperties properties() const override;

  void* allocate(std::size_t nbytes) override;
  void deallocate(void* data, std::size_t nbytes) noexcept override;
  MemoryInfo memory_info() const override;
  HostBuffer allocate_host(std::size_t nbytes) override;

  void copy_async(void* destination, Device destination_device, const void* source, Device source_device,
                  std::size_t nbytes, Stream stream) override;
  void fill_async(void* destination, unsigned char value, std::size_t nbytes, Stream stream) override;

  // Throws: NotSupported at the first call if the plugin has no kernels for this GPU.
  Stream default_stream() override;
  Stream create_stream() override;
  void destroy_stream(Stream stream) noexcept override;
  Event record(Stream stream) override;
  void wait(Stream stream, const Event& event) override;
  bool is_done(Stream stream) override;
  void synchronize(Stream stream) override;
  void prepare_launch(const char* name) override;
  WorkCounts work_counts() const noexcept override;
  std::unique_ptr<Stopwatch> make_stopwatch() override;
  StreamRecorder* recorder() noexcept override;
  void begin_range(const char* name) noexcept override;
  void end_range() noexcept override;

 private:
  // Makes the GPU current.
  void use() const;
  void check_kernels() const;
  Stream make_stream();

  Device device_;
  std::string built_for_;
  cudaDeviceProp properties_{};
  bool simulated_ = false;
  std::mutex mutex_;  // guards the streams
  Stream default_stream_;
  std::vector<Stream> spare_streams_;
  std::size_t made_streams_ = 0;
  std::shared_ptr<EventPool> events_;
  std::unique_ptr<StagingBuffers> staging_;
  std::unique_ptr<CudaRecorder> recorder_;
};

}  // namespace heddle::cuda
