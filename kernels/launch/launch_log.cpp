#include "kernels/launch/launch_log.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace heddle::cuda {
namespace {

constexpr std::size_t kRemembered = 16;

struct RecentNames {
  std::array<const char*, kRemembered> names{};
  std::size_t count = 0;  // since the last wait
};
thread_local RecentNames recent;
thread_local LaunchTotals totals;
std::atomic<LaunchObserver> observer{nullptr};

}  // namespace

LaunchTotals launch_totals() noexcept { return totals; }

void note_launch(const char* name, std::span<const Access> accesses) {
  recent.names[recent.count++ % kRemembered] = name;
  ++totals.launches;
  for (const Access& access : accesses) {
    if (access.data == nullptr) continue;
    const std::size_t touched = access.nbytes - access.untouched_nbytes;
    if (access.read) totals.read_nbytes += touched;
    if (access.written) totals.written_nbytes += touched;
  }
  if (const LaunchObserver told = observer.load(std::memory_order_acquire)) told(name, accesses);
}

std::string recent_launches() {
  std::string text;
  const std::size_t shown = std::min(recent.count, kRemembered);
  for (std::size_t i = recent.count - shown; i < recent.count; ++i) {
    if (!text.empty()) text += ", ";
    text += recent.names[i % kRemembered];
  }
  return text;
}

void forget_launches() noexcept { recent.count = 0; }

void set_launch_observer(LaunchObserver value) noexcept { observer.store(value, std::memory_order_release); }

}  // namespace heddle::cuda
