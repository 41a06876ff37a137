#include "nccl_comm/meeting.h"

#include "engine/core/cpu_count.h"
#include "engine/core/error.h"

namespace heddle::comm {
namespace {

// Longer than the difference between ranks that do the same work; then the processor is given away.
constexpr std::chrono::microseconds kSpin{50};

}  // namespace

Meeting::Meeting(int members, std::chrono::milliseconds timeout)
    : members_(members),
      timeout_(timeout),
      spin_(members <= affinity_cpu_count()),
      here_(static_cast<std::size_t>(members > 0 ? members : 0), false),
      left_(here_) {
  HEDDLE_CHECK(members >= 1, "a group of ", members, " ranks");
  HEDDLE_CHECK(timeout.count() > 0, "the time to wait for other ranks is ", timeout.count(), " ms, expected above 0");
}

bool Meeting::arrive(int member) {
  here_[static_cast<std::size_t>(member)] = true;
  if (++arrived_ < members_) return false;
  arrived_ = 0;
  here_.assign(here_.size(), false);
  generation_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
  return true;
}

bool Meeting::spin_past(std::uint32_t generation) const {
  if (!spin_) return false;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (generation_.load(std::memory_order_acquire) != generation) return true;
    }
  } while (!ended_.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < end);
  return false;
}

void Meeting::come_together(int member, const std::function<std::string()>& purpose) {
  std::uint32_t generation = 0;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) throw_ended();
    generation = generation_.load(std::memory_order_relaxed);
    if (arrive(member)) return;
    const std::string gone = ranks_that([&](std::size_t i) { return left_[i] && !here_[i]; });
    if (!gone.empty()) {
      end_locked(join_text(purpose(), ": ", gone, " of ", members_, " has left"));
      throw_ended();
    }
  }
  if (spin_past(generation)) return;
  const auto come = [&] { return generation_.load(std::memory_order_relaxed) != generation; };
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, timeout_, [&] { return come() || ended_; })) {
    if (come()) return;
    throw_ended();
  }
  end_locked(join_text(purpose(), ": ", ranks_that([&](std::size_t i) { return !here_[i]; }), " of ", members_,
                       " did not come within ", std::chrono::duration<double>(timeout_).count(), " s"));
  throw_ended();
}

void Meeting::part(int member) {
  std::uint32_t generation = 0;
  {
    const std::lock_guard lock(mutex_);
    generation = generation_.load(std::memory_order_relaxed);
    if (arrive(member)) return;
  }
  if (spin_past(generation)) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != generation; });
}

void Meeting::end(const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  end_locked(reason);
}

void Meeting::end_locked(const std::string& reason) noexcept {
  if (ended_) return;
  try {
    reason_ = reason;
  } catch (const std::bad_alloc&) {
    reason_.clear();
  }
  ended_ = true;
  changed_.notify_all();
}

void Meeting::leave(int member) noexcept {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(member)] = true;
  // Whoever waits now waits for this member too, unless it has arrived already and is on its way out.
  if (arrived_ > 0 && !here_[static_cast<std::size_t>(member)]) {
    try {
      end_locked(join_text("rank ", member, " of ", members_, " has left while others waited for it"));
    } catch (const std::exception&) {
      end_locked({});
    }
  }
}

void Meeting::throw_ended() const { throw CommError(reason_.empty() ? "the group of ranks has ended" : reason_); }

template <class Wanted>
std::string Meeting::ranks_that(Wanted wanted) const {
  std::string list;
  int count = 0;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    if (!wanted(i)) continue;
    list += join_text(count++ == 0 ? "" : ", ", i);
  }
  if (count == 0) return {};
  return (count == 1 ? "rank " : "ranks ") + list;
}

}  // namespace heddle::comm
