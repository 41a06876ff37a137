// Control groups of containers as the kernel shows them, in a folder made for the test.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/temp_folder.h"

namespace heddle::test {

class FakeCgroups {
 public:
  void write(const std::string& path, const std::string& text) const {
    const std::string file = folder_ / path;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    put_file(file, text);
  }
  // In the place of /sys/fs/cgroup and of /proc/self/cgroup.
  std::string root() const { return folder_.path(); }
  std::string self() const { return folder_ / "self"; }

 private:
  TempFolder folder_;
};

}  // namespace heddle::test
