// Event files in a run's folder: one for each start of a process, which TensorBoard reads as one run. Knows records and
// file names; nothing of what events say but their step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/core/file.h"

namespace heddle::tools {

class EventFile {
 public:
  // Makes "events.out.tfevents.TIME.HOST.PID.heddle", with a TIME (seconds since 1970) behind that of every other one
  // in the folder, since TensorBoard reads them in the order of their names; its first record is the version.
  // Throws: IoError.
  explicit EventFile(const std::string& folder);

  const std::string& path() const noexcept { return path_; }
  // Adds one record. It is in the file when the call returns: nothing is lost when the process is killed.
  // Throws: IoError.
  void append(std::string_view event);

 private:
  std::string path_;
  FileHandle handle_;
};

// Cuts the folder's event files (of this program) before their first record that is of a later step, or broken; the
// files are left with the records in front of it. Throws: IoError.
void drop_events_after(const std::string& folder, std::int64_t step);

// Seconds since 1970.
double wall_time_now();

}  // namespace heddle::tools
