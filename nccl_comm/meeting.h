// Where rank threads of one process wait for each other, with a deadline. Used by the in-process communicator; knows
// nothing of tensors.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace heddle::comm {

class Meeting {
 public:
  // Throws: InvalidArgument unless members >= 1 and timeout > 0.
  Meeting(int members, std::chrono::milliseconds timeout);

  // Returns when all members have come. purpose() is asked for the message if they do not: "all_reduce of bucket 2".
  // Throws: CommError if the deadline passes, naming who has not come; if a member has left; if the meeting was ended.
  // It has ended then for all.
  void come_together(int member, const std::function<std::string()>& purpose);
  // Returns when all members have called it. For the end of what followed come_together() in which nobody waits for
  // anything, so it has no deadline: a member that left early could take away memory that another one still reads.
  // Throws: CommError if the meeting was ended meanwhile.
  void part(int member);

  // Everybody who waits or comes throws CommError with the reason, the first one if there are several.
  void end(const std::string& reason) noexcept;
  // The member will not come again: who waits for it, now or later, need not wait for the deadline.
  void leave(int member) noexcept;

 private:
  // Counts the member in; true if it was the last one.
  bool arrive(int member);
  // True if the generation has passed, after a short look if every member has a processor.
  bool spin_past(std::uint32_t generation) const;
  void end_locked(const std::string& reason) noexcept;
  [[noreturn]] void throw_ended() const;
  // "rank 1", "ranks 1, 3": members for which wanted() holds.
  template <class Wanted>
  std::string ranks_that(Wanted wanted) const;

  const int members_;
  const std::chrono::milliseconds timeout_;
  const bool spin_;  // everybody has a processor
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<std::uint32_t> generation_{0};  // grows when all have arrived
  std::atomic<bool> ended_{false};
  std::string reason_;      // once ended_
  int arrived_ = 0;         // in this generation
  std::vector<bool> here_;  // who has arrived in it
  std::vector<bool> left_;  // for good
};

}  // namespace heddle::comm
