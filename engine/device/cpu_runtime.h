// The CPU as a device: page-aligned host memory; streams and events are empty, since all work is done at the call.
#pragma once

#include "device_runtime.h"

namespace heddle {

class CpuRuntime final : public DeviceRuntime {
 public:
  Device device() const noexcept override { return Device::cpu(); }
  std::string description() const override;
  void* allocate(std::size_t nbytes) override;
  void deallocate(void* data, std::size_t nbytes) noexcept override;
  MemoryInfo memory_info() const override;
  void copy_async(void* destination, Device destination_device, const void* source, Device source_device,
                  std::size_t nbytes, Stream stream) override;
  void fill_async(void* destination, unsigned char value, std::size_t nbytes, Stream stream) override;
  Stream create_stream() override { return {}; }
  void destroy_stream(Stream) noexcept override {}
  Event record(Stream) override { return {}; }
  void wait(Stream, const Event&) override {}
  bool is_done(Stream) override { return true; }
  void synchronize(Stream) override {}
};

}  // namespace heddle
