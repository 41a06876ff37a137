// A device of a fixed size in host memory, for tests of what is built on DeviceRuntime: it counts and can be full.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "engine/device/device_runtime.h"

namespace heddle::testing {

// Streams are numbers; work is done at the call.
class FakeDevice final : public DeviceRuntime {
 public:
  FakeDevice(int index, std::size_t capacity) : device_(Device::cuda(index)), capacity_(capacity) {}
  ~FakeDevice() override {
    for (const auto& [data, nbytes] : held_) std::free(data);
  }

  Device device() const noexcept override { return device_; }
  std::string description() const override { return "fake device"; }
  void* allocate(std::size_t nbytes) override {
    if (nbytes > capacity_ - used_) return nullptr;
    std::unique_ptr<void, decltype(&std::free)> data(std::aligned_alloc(256, nbytes), &std::free);
    held_[data.get()] = nbytes;
    used_ += nbytes;
    return data.release();
  }
  void deallocate(void* data, std::size_t nbytes) noexcept override {
    used_ -= nbytes;
    held_.erase(data);
    std::free(data);
  }
  MemoryInfo memory_info() const override { return {capacity_ - used_, capacity_}; }
  void copy_async(void* to, Device, const void* from, Device, std::size_t nbytes, Stream) override {
    if (nbytes != 0) std::memcpy(to, from, nbytes);
  }
  void fill_async(void* to, unsigned char value, std::size_t nbytes, Stream) override {
    if (nbytes != 0) std::memset(to, value, nbytes);
  }
  Stream default_stream() override { return stream(1); }
  Stream create_stream() override { return stream(++streams_); }
  void destroy_stream(Stream) noexcept override {}
  Event record(Stream) override { return {}; }
  void wait(Stream, const Event&) override {}
  bool is_done(Stream) override { return true; }
  void synchronize(Stream stream) override { waited_.push_back(stream); }

  Stream stream(std::uintptr_t number) const { return {device_, reinterpret_cast<void*>(number)}; }
  std::size_t used_nbytes() const { return used_; }
  // Streams that were waited for.
  std::vector<Stream>& waited() { return waited_; }

 private:
  Device device_;
  std::size_t capacity_;
  std::size_t used_ = 0;
  std::uintptr_t streams_ = 1;
  std::map<void*, std::size_t> held_;
  std::vector<Stream> waited_;
};

}  // namespace heddle::testing
