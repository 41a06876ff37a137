// Fetches one URL into a file with a program that the machine has (curl or wget), so that Heddle needs no HTTP library.
// Used by fetch; knows nothing of data sets.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace heddle::datasets {

struct DownloadOptions {
  std::string program;  // path of curl or wget; empty: curl, else wget, from $PATH
  std::chrono::seconds connect_timeout{20};
  std::chrono::seconds stall_timeout{30};  // give up when almost nothing arrives for so long
  std::uint64_t max_nbytes = std::uint64_t{64} << 20;
  // Called about ten times a second with the size of the file so far; returning false ends the download.
  std::function<bool(std::uint64_t nbytes)> on_progress;
};

struct DownloadResult {
  bool ok = false;
  bool stopped = false;          // by on_progress
  bool cannot_continue = false;  // the server cannot send only the rest: remove the file and begin anew
  std::string reason;            // one line, if not ok
};

// The program that download() would run; empty if there is neither.
std::string find_download_program();

// Downloads url (http://, https:// or file://) into path. Bytes already there are kept and only the rest is fetched.
// Blocks. What was received before a failure stays in the file. Runs no shell and prints nothing.
// Throws: NotSupported if there is no program; InvalidArgument for another kind of URL.
DownloadResult download(const std::string& url, const std::string& path, const DownloadOptions& options = {});

}  // namespace heddle::datasets
