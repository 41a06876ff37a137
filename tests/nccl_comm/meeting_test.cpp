// Deadlines and ends of the place where rank threads wait.
#include "nccl_comm/meeting.h"

#include <thread>

#include "engine/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"

using namespace heddle;
using comm::Meeting;
using heddle::test::contains;

namespace {

std::string purpose() { return "a test"; }

// The message of the CommError that member meets, empty if none.
std::string come(Meeting& meeting, int member) {
  try {
    meeting.come_together(member, purpose);
    meeting.part(member);
    return {};
  } catch (const CommError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("alone, nobody waits") {
  Meeting meeting(1, std::chrono::milliseconds(1));
  CHECK(come(meeting, 0) == "");
  CHECK(come(meeting, 0) == "");
}

TEST_CASE("who does not come is named, and the meeting stays ended") {
  Meeting meeting(4, std::chrono::milliseconds(50));
  std::string other;
  std::thread thread([&] { other = come(meeting, 2); });
  const std::string own = come(meeting, 0);
  thread.join();
  CHECK(contains(own, "a test: ranks 1, 3 of 4 did not come within 0.05 s"));
  CHECK(other == own);
  CHECK(come(meeting, 1) == own);
}

TEST_CASE("an end wakes those who wait, and the first reason stays") {
  Meeting meeting(2, std::chrono::seconds(60));
  std::string other;
  std::thread thread([&] { other = come(meeting, 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  meeting.end("the disk is full");
  meeting.end("a later reason");
  thread.join();
  CHECK(other == "the disk is full");
  CHECK(come(meeting, 0) == "the disk is full");
}

TEST_CASE("a member that leaves wakes those who wait for it") {
  Meeting meeting(2, std::chrono::seconds(60));
  std::string other;
  std::thread thread([&] { other = come(meeting, 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  meeting.leave(0);
  thread.join();
  CHECK(contains(other, "rank 0 of 2 has left"));
}

TEST_CASE("members that come and part many times meet each time") {
  constexpr int kMembers = 5, kRounds = 2000;
  Meeting meeting(kMembers, std::chrono::seconds(60));
  int counts[kMembers] = {};
  bool apart = false;
  std::vector<std::thread> threads;
  for (int member = 0; member < kMembers; ++member) {
    threads.emplace_back([&, member] {
      for (int round = 0; round < kRounds; ++round) {
        ++counts[member];
        meeting.come_together(member, purpose);
        // Between the two nobody writes a count.
        if (member == 0) {
          for (const int count : counts) apart |= count != round + 1;
        }
        meeting.part(member);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(apart);
}
