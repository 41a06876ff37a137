// Gets Fashion-MNIST from the network into a folder, and verifies a folder. Used by `heddle data fetch|verify`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "datasets/fashion_mnist.h"

namespace heddle::datasets {

// The official site and the repository of the authors.
std::vector<std::string> fashion_mnist_mirrors();

struct FetchOptions {
  std::string folder;                                          // empty: fashion_mnist_cache_folder()
  std::vector<std::string> mirrors = fashion_mnist_mirrors();  // file i is at <mirror>/<name>.gz; tried in order
  std::vector<KnownFile> files{kFashionMnistFiles.begin(), kFashionMnistFiles.end()};
  std::string program;  // curl or wget; empty: what there is
  std::chrono::seconds connect_timeout{20};
  // Lines about what happens, for the caller to print.
  std::function<void(const std::string&)> on_message;
  // Name of the file and bytes received so far, about ten times a second; returning false stops.
  std::function<bool(const std::string& name, std::uint64_t nbytes)> on_progress;
};

struct FetchedFile {
  std::string path;
  std::string url;  // where it came from; empty: it was already there
};

// Makes sure that all files are in the folder with the right content, and downloads what is missing. A download goes to
// "<name>.gz.part", is continued after an interruption, and is renamed only after its content was found right; a file
// with other content is never touched but refused. Several processes may fetch into one folder: one works, the others
// wait. Throws: IoError naming the mirrors tried, why each failed, and other ways to get the data.
std::vector<FetchedFile> fetch_fashion_mnist(const FetchOptions& options = {});

struct VerifiedFile {
  std::string path;  // with ".gz" if that is what is there
  bool ok = false;
  std::string problem;  // one line, if not ok
  std::uint32_t crc32 = 0;
  std::uint64_t nbytes = 0;
};

// Reads all files in a folder and compares length and checksum of their unpacked content. Throws nothing for bad files.
std::vector<VerifiedFile> verify_fashion_mnist(const std::string& folder,
                                               const std::vector<KnownFile>& files = {kFashionMnistFiles.begin(),
                                                                                      kFashionMnistFiles.end()});

}  // namespace heddle::datasets
