#include "nccl_comm/meet.h"

#include <functional>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "engine/core/error.h"

namespace heddle::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{3};

// Not from the program's own random numbers: two runs with one seed must not share it.
std::string random_name() {
  std::random_device source;
  std::ostringstream text;
  text << std::hex << source() << source();
  return text.str();
}

// What rank r > 0 writes: a name (its own, which no earlier run has used; the group's that it accepts), and how many
// ranks it expects.
std::string join_key(int rank) { return join_text("join-", rank); }
std::string accept_key(int rank) { return join_text("accept-", rank); }
const char* const kInvitationKey = "invitation";

struct Joined {
  std::string name;
  int world_size = 0;
};

std::optional<Joined> parse_joined(const std::optional<std::string>& text) {
  Joined joined;
  if (!text || !(std::istringstream(*text) >> joined.name >> joined.world_size)) return std::nullopt;
  return joined;
}

// Calls step() until it says that it is done; false if the deadline comes first. Throws: CommError if it is cancelled.
bool repeat_until(Clock::time_point deadline, const std::function<bool()>& cancelled,
                  const std::function<bool()>& step) {
  while (!step()) {
    if (Clock::now() >= deadline) return false;
    throw_if_cancelled(cancelled);
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += join_text(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

std::string differing_sizes(int first, int rank, int other) {
  return join_text("the ranks disagree: rank 0 expects ", first, " ranks, rank ", rank, " expects ", other);
}

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

// Rank 0 invites those who have written join-RANK, with a group name of its own and their names. Somebody whose name an
// earlier run has left there does not answer; as soon as the real one has written its own there is a new invitation.
// When all have accepted the same invitation it is confirmed.
std::string meet_as_first(Store& store, const MeetOptions& options, Clock::time_point deadline) {
  std::vector<std::string> invited;
  std::string group;
  std::vector<int> missing;
  const auto step = [&] {
    missing.clear();
    std::vector<std::string> names;
    for (int r = 1; r < options.world_size; ++r) {
      const std::optional<Joined> joined = parse_joined(store.get(join_key(r)));
      names.push_back(joined ? joined->name : "-");
    }
    if (group.empty() || names != invited) {
      invited = names;
      group = random_name();
      std::string invitation = join_text(group, " ", options.world_size);
      for (const std::string& name : names) invitation += " " + name;
      store.set(kInvitationKey, invitation);
    }
    for (int r = 1; r < options.world_size; ++r) {
      const std::optional<Joined> accepted = parse_joined(store.get(accept_key(r)));
      if (!accepted || accepted->name != group) {
        missing.push_back(r);
      } else if (accepted->world_size != options.world_size) {
        throw CommError(differing_sizes(options.world_size, r, accepted->world_size));
      }
    }
    return missing.empty();
  };
  if (!repeat_until(deadline, options.cancelled, step)) {
    throw CommError(join_text(list_ranks(missing), " of ", options.world_size, " did not come to ", store.where(),
                              " within ", seconds(options.timeout), " s"));
  }
  store.set("go-" + group, "go");
  return group;
}

std::string meet_as_other(Store& store, const MeetOptions& options, Clock::time_point deadline) {
  const std::string own = random_name();
  store.set(join_key(options.rank), join_text(own, " ", options.world_size));
  std::string group;
  const auto step = [&] {
    std::istringstream invitation(store.get(kInvitationKey).value_or(""));
    std::string invited_to, name;
    int world_size = 0;
    invitation >> invited_to >> world_size;
    for (int r = 1; r <= options.rank; ++r) name.clear(), invitation >> name;
    if (name == own) {
      if (invited_to != group) {
        group = invited_to;
        store.set(accept_key(options.rank), join_text(group, " ", options.world_size));
      }
      if (world_size != options.world_size) {
        throw CommError(differing_sizes(world_size, options.rank, options.world_size));
      }
    }
    return !group.empty() && store.get("go-" + group).has_value();
  };
  if (!repeat_until(deadline, options.cancelled, step)) {
    std::vector<int> missing;
    if (group.empty()) missing.push_back(0);
    for (int r = 1; r < options.world_size && !group.empty(); ++r) {
      const std::optional<Joined> accepted = parse_joined(store.get(accept_key(r)));
      if (!accepted || accepted->name != group) missing.push_back(r);
    }
    // If all others are there, rank 0 has gone in between.
    if (missing.empty()) missing.push_back(0);
    throw CommError(join_text("rank ", options.rank, " of ", options.world_size, " has waited ",
                              seconds(options.timeout), " s in ", store.where(), " for ", list_ranks(missing),
                              ", which did not come"));
  }
  return group;
}

}  // namespace

std::string meet(Store& store, const MeetOptions& options) {
  HEDDLE_CHECK(options.rank >= 0 && options.rank < options.world_size, "rank ", options.rank, " of ",
               options.world_size, " ranks");
  HEDDLE_CHECK(options.timeout.count() > 0, "the time to wait for other ranks is ", options.timeout.count(),
               " ms, expected above 0");
  const Clock::time_point deadline = Clock::now() + options.timeout;
  return options.rank == 0 ? meet_as_first(store, options, deadline) : meet_as_other(store, options, deadline);
}

}  // namespace heddle::comm
