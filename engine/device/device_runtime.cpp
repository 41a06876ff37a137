#include "engine/device/device_runtime.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "engine/core/error.h"

namespace heddle {
namespace {

// For devices that have done all work when the call returns.
class HostStopwatch final : public Stopwatch {
 public:
  void start(Stream) override { begin_ = Clock::now(); }
  double stop(Stream) override { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
};

}  // namespace

std::unique_ptr<Stopwatch> DeviceRuntime::make_stopwatch() { return std::make_unique<HostStopwatch>(); }

DeviceProperties DeviceRuntime::properties() const {
  return {.name = description(), .memory_nbytes = memory_info().total_nbytes};
}

void DeviceRuntime::add_watch(WaitWatch& watch) {
  const std::lock_guard lock(watch_mutex_);
  watches_.push_back(&watch);
}

void DeviceRuntime::remove_watch(WaitWatch& watch) noexcept {
  const std::lock_guard lock(watch_mutex_);
  watches_.erase(std::remove(watches_.begin(), watches_.end(), &watch), watches_.end());
}

void DeviceRuntime::waiting(std::chrono::steady_clock::duration waited) {
  const std::lock_guard lock(watch_mutex_);
  for (std::size_t i = 0; i < watches_.size(); ++i) watches_[i]->waiting(waited);
}

bool DeviceRuntime::is_watched() const noexcept {
  const std::lock_guard lock(watch_mutex_);
  return !watches_.empty();
}

HostBuffer DeviceRuntime::allocate_host(std::size_t nbytes) {
  constexpr std::align_val_t kAlignment{64};
  void* const data = ::operator new(nbytes == 0 ? 1 : nbytes, kAlignment, std::nothrow);
  if (data == nullptr) {
    throw OutOfMemory(join_text("out of memory on ", device(), ": asked for ", nbytes, " bytes of host memory"),
                      nbytes);
  }
  std::memset(data, 0, nbytes);
  std::shared_ptr<void> owner(data, [](void* p) { ::operator delete(p, kAlignment); });
  return {.owner = std::move(owner), .host = data, .device = data, .nbytes = nbytes};
}

}  // namespace heddle
