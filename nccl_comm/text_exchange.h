// Texts between ranks, for what is said once: names, paths, reasons.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/communicator.h"

namespace heddle::comm {

// The text of every rank, by rank, on all ranks. Goes through memory of `device`, since a library for GPUs moves
// nothing else. Blocks. Throws: CommError.
std::vector<std::string> all_gather_text(Communicator& communicator, const std::string& text, Device device,
                                         std::string_view what);
// The first line in which a rank's text differs from rank 0's, and that line of both ("nothing more" at the end of the
// shorter text).
struct TextDifference {
  int rank = 0;
  std::string of_first, of_other;
};
// Empty if the texts of all ranks are alike; the same on all ranks. As above.
std::optional<TextDifference> compare_text(Communicator& communicator, const std::string& text, Device device,
                                           std::string_view what);
// The text of rank `root` on all ranks. As above.
std::string broadcast_text(Communicator& communicator, const std::string& text, int root, Device device,
                           std::string_view what);

}  // namespace heddle::comm
