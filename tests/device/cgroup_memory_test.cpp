// Limits of containers as the kernel writes them.
#include "engine/device/cgroup_memory.h"

#include "tests/support/catch.h"
#include "tests/support/fake_cgroups.h"

using namespace heddle;

namespace {

struct Groups : test::FakeCgroups {
  MemoryInfo memory() const { return cgroup_memory(root(), self()); }
};

void check(const MemoryInfo& memory, std::size_t free_nbytes, std::size_t total_nbytes) {
  CHECK(memory.free_nbytes == free_nbytes);
  CHECK(memory.total_nbytes == total_nbytes);
}

}  // namespace

TEST_CASE("without a limit a control group says nothing of memory") {
  const Groups groups;
  check(groups.memory(), 0, 0);
  groups.write("memory.max", "max\n");
  groups.write("memory.current", "1000\n");
  check(groups.memory(), 0, 0);
  groups.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  check(groups.memory(), 0, 0);
}

TEST_CASE("what a container has left is its limit less what it uses, file caches not counted") {
  const Groups groups;
  groups.write("memory.max", "1000\n");
  groups.write("memory.current", "700\n");
  check(groups.memory(), 300, 1000);
  groups.write("memory.stat", "anon 400\ninactive_file 250\nactive_file 50\n");
  check(groups.memory(), 550, 1000);
  groups.write("memory.current", "1200\n");
  groups.write("memory.stat", "anon 1200\ninactive_file 0\n");
  check(groups.memory(), 0, 1000);
}

TEST_CASE("the tightest group of the process and those above counts, in both versions") {
  const Groups groups;
  groups.write("self", "0::/outer/inner\n");
  groups.write("outer/memory.max", "5000\n");
  groups.write("outer/memory.current", "4900\n");
  groups.write("outer/inner/memory.max", "2000\n");
  groups.write("outer/inner/memory.current", "500\n");
  check(groups.memory(), 100, 2000);
  const Groups old;
  old.write("self", "5:cpu:/x\n4:memory:/job\n");
  old.write("memory/job/memory.limit_in_bytes", "3000\n");
  old.write("memory/job/memory.usage_in_bytes", "1000\n");
  old.write("memory/x/memory.limit_in_bytes", "1\n");
  check(old.memory(), 2000, 3000);
}
