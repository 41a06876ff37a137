// How many threads the engine uses, and that it leaves its host program's settings alone.
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/cpu_count.h"
#include "engine/core/parallel.h"
#include "tests/support/catch.h"
#include "tests/support/fake_cgroups.h"

using namespace heddle;

namespace {

// What the probe prints in a child with the first `cpus` processors of our affinity mask and OMP_NUM_THREADS set to the
// given text, or unset.
std::string probe(int cpus, const char* omp_num_threads) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    cpu_set_t all, some;
    CPU_ZERO(&some);
    ::sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0, taken = 0; cpu < CPU_SETSIZE && taken < cpus; ++cpu) {
      if (CPU_ISSET(cpu, &all)) {
        CPU_SET(cpu, &some);
        ++taken;
      }
    }
    ::sched_setaffinity(0, sizeof some, &some);
    if (omp_num_threads == nullptr) {
      ::unsetenv("OMP_NUM_THREADS");
    } else {
      ::setenv("OMP_NUM_THREADS", omp_num_threads, 1);
    }
    ::dup2(ends[1], 1);
    ::execl(HEDDLE_THREAD_PROBE, HEDDLE_THREAD_PROBE, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  return text;
}

struct FakeCgroups : test::FakeCgroups {
  int quota() const { return quota_cpu_count(root(), self()); }
};

constexpr int kNoQuota = std::numeric_limits<int>::max();

std::size_t threads_of_process() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// A step with both kinds of kernels: own ones (a linear layer) and oneDNN's (a matrix product and a grouped
// convolution).
std::vector<float> some_work() {
  Backend& backend = backend_for(Device::cpu());
  Tensor a = Tensor::empty({96, 80}), b = Tensor::empty({80, 64}), c = Tensor::empty({96, 64});
  for (std::int64_t i = 0; i < a.numel(); ++i) a.mutable_host_data<float>()[i] = std::sin(static_cast<float>(i));
  for (std::int64_t i = 0; i < b.numel(); ++i) b.mutable_host_data<float>()[i] = std::cos(static_cast<float>(i));
  backend.matmul(a, b, {}, c, WriteMode::store);
  Tensor y = Tensor::empty({96, 80});
  backend.linear_forward(c, b, Tensor(), true, y);
  const Tensor x = y.reshape({16, 5, 6, 16}), w = b.narrow(0, 9).reshape({16, 3, 3, 4});
  Tensor z = Tensor::empty({16, 3, 4, 16}), dw = Tensor::empty_like(w);
  backend.conv2d_forward(x, w, Tensor(), {.groups = 4}, true, z);
  backend.conv2d_backward_weight(x, z, {.groups = 4}, dw, nullptr, WriteMode::store);
  return dw.to_vector<float>();
}

}  // namespace

TEST_CASE("the default number of threads keeps to the affinity mask, and OMP_NUM_THREADS wins") {
  CHECK(probe(1, nullptr) == "1 affinity mask\n");
  CHECK(probe(1, "3") == "3 OMP_NUM_THREADS\n");
  CHECK(probe(1, "nonsense") == "1 affinity mask\n");
  CHECK(probe(1, "0") == "1 affinity mask\n");
  const int cpus = affinity_cpu_count();
  CHECK(default_num_threads() >= 1);
  if (quota_cpu_count() >= cpus) CHECK(probe(cpus, nullptr) == join_text(cpus, " affinity mask\n"));
}

TEST_CASE("a container's quota is rounded up to whole processors") {
  const FakeCgroups cgroups;
  CHECK(cgroups.quota() == kNoQuota);
  cgroups.write("cpu.max", "max 100000\n");
  CHECK(cgroups.quota() == kNoQuota);
  cgroups.write("cpu.max", "150000 100000\n");
  CHECK(cgroups.quota() == 2);
  cgroups.write("cpu.max", "400000 100000\n");
  CHECK(cgroups.quota() == 4);
  cgroups.write("cpu.max", "1000 100000\n");
  CHECK(cgroups.quota() == 1);
  cgroups.write("cpu.max", "garbage\n");
  CHECK(cgroups.quota() == kNoQuota);
}

TEST_CASE("the smallest quota of the process's group and those above counts") {
  const FakeCgroups cgroups;
  cgroups.write("self", "0::/outer/inner\n");
  cgroups.write("outer/inner/cpu.max", "max 100000\n");
  cgroups.write("outer/cpu.max", "250000 100000\n");
  cgroups.write("other/cpu.max", "100000 100000\n");
  CHECK(cgroups.quota() == 3);
  cgroups.write("outer/inner/cpu.max", "50000 100000\n");
  CHECK(cgroups.quota() == 1);
}

TEST_CASE("quotas of the first version of control groups are read") {
  const FakeCgroups cgroups;
  cgroups.write("self", "12:memory:/jobs/a\n5:cpu,cpuacct:/jobs/a\n");
  cgroups.write("cpu/jobs/a/cpu.cfs_quota_us", "-1\n");
  cgroups.write("cpu/jobs/a/cpu.cfs_period_us", "100000\n");
  CHECK(cgroups.quota() == kNoQuota);
  cgroups.write("cpu/jobs/cpu.cfs_quota_us", "120000\n");
  cgroups.write("cpu/jobs/cpu.cfs_period_us", "100000\n");
  CHECK(cgroups.quota() == 2);
}

TEST_CASE("the host program's OpenMP settings stay as they are") {
  const int threads = omp_get_max_threads(), dynamic = omp_get_dynamic();
  omp_set_num_threads(7);
  omp_set_dynamic(1);
  for (const int limit : {1, 2, 3}) {
    const ThreadLimit guard(limit);
    some_work();
    parallel_for(1000, 1, [](std::int64_t, std::int64_t) {});
    CHECK(omp_get_max_threads() == 7);
    CHECK(omp_get_dynamic() != 0);
  }
  omp_set_num_threads(threads);
  omp_set_dynamic(dynamic);
}

TEST_CASE("the engine works inside a parallel region of the host program") {
  std::vector<float> expected;
  {
    const ThreadLimit guard(1);
    expected = some_work();
  }
  std::vector<std::vector<float>> results(2);
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 2; ++i) {
    const ThreadLimit guard(1);
    results[static_cast<std::size_t>(i)] = some_work();
  }
  CHECK(results[0] == expected);
  CHECK(results[1] == expected);
  // Without a limit too: the runtime gives an inner region one thread, and the parts are computed one after the other.
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 2; ++i) results[static_cast<std::size_t>(i)] = some_work();
  for (const auto& result : results) {
    for (std::size_t i = 0; i < result.size(); ++i) CHECK(result[i] == Approx(expected[i]).epsilon(1e-4).margin(1e-3));
  }
}

TEST_CASE("threads with a limit of one compute side by side and start no others") {
  std::vector<float> expected;
  {
    const ThreadLimit guard(1);
    expected = some_work();
  }
  const std::size_t before = threads_of_process();
  std::vector<std::vector<float>> results(2);
  std::vector<std::size_t> counts(2);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&results, &counts, i] {
      const ThreadLimit guard(1);
      for (int repeat = 0; repeat < 20; ++repeat) results[i] = some_work();
      counts[i] = threads_of_process();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(results[0] == expected);
  CHECK(results[1] == expected);
  CHECK(counts[0] <= before + 2);
  CHECK(counts[1] <= before + 2);
}

TEST_CASE("a ThreadLimit holds for its thread while it lives") {
  const int usual = num_threads();
  {
    const ThreadLimit outer(3);
    CHECK(num_threads() == 3);
    {
      const ThreadLimit inner(1);
      CHECK(num_threads() == 1);
      CHECK(parallel_parts(1000, 1) == 1);
    }
    CHECK(num_threads() == 3);
    int elsewhere = 0;
    std::thread([&] { elsewhere = num_threads(); }).join();
    CHECK(elsewhere == usual);
  }
  CHECK(num_threads() == usual);
  CHECK_THROWS_AS(ThreadLimit(0), InvalidArgument);
  CHECK_THROWS_WITH(set_num_threads(0), "number of threads is 0; it must be between 1 and 4096");
}

TEST_CASE("every part of a loop runs once, whatever the number of threads") {
  for (const int threads : {1, 2, 3, 8, 50}) {
    const ThreadLimit guard(threads);
    for (int repeat = 0; repeat < 300; ++repeat) {
      std::vector<int> visits(97, 0);
      std::vector<int> parts(static_cast<std::size_t>(threads), 0);
      parallel_for(97, 1, [&](std::int64_t begin, std::int64_t end, int part) {
        ++parts[static_cast<std::size_t>(part)];
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      REQUIRE(visits == std::vector<int>(97, 1));
      REQUIRE(parts == std::vector<int>(static_cast<std::size_t>(threads), 1));
    }
  }
}

TEST_CASE("loops of several host threads run side by side") {
  std::vector<std::int64_t> sums(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&sums, t] {
      const ThreadLimit guard(3);
      for (int repeat = 0; repeat < 500; ++repeat) {
        std::vector<std::int64_t> partial(3);
        parallel_for(3000, 1, [&](std::int64_t begin, std::int64_t end, int part) {
          for (std::int64_t i = begin; i < end; ++i) partial[static_cast<std::size_t>(part)] += i;
        });
        sums[t] += partial[0] + partial[1] + partial[2];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(sums == std::vector<std::int64_t>(4, std::int64_t{500} * 3000 * 2999 / 2));
}

TEST_CASE("the exception of the lowest part comes home, and the next loop works") {
  const ThreadLimit guard(3);
  for (int repeat = 0; repeat < 50; ++repeat) {
    CHECK_THROWS_WITH(parallel_for(3, 1,
                                   [](std::int64_t, std::int64_t, int part) {
                                     if (part > 0) throw InvalidArgument(join_text("part ", part));
                                   }),
                      "part 1");
  }
  int count = 0;
  parallel_for(1, 1, [&](std::int64_t, std::int64_t) { ++count; });
  CHECK(count == 1);
}

TEST_CASE("a loop inside a loop runs on its thread") {
  const ThreadLimit guard(2);
  std::vector<int> inner(2);
  parallel_for(2, 1, [&](std::int64_t, std::int64_t, int part) {
    parallel_for(100, 1, [&](std::int64_t begin, std::int64_t end) {
      inner[static_cast<std::size_t>(part)] += static_cast<int>(end - begin) == 100 ? 1 : 100;
    });
  });
  CHECK(inner == std::vector<int>{1, 1});
}

TEST_CASE("the helpers of a thread end with it") {
  std::thread([] {
    const ThreadLimit guard(4);
    parallel_for(4, 1, [](std::int64_t, std::int64_t) {});
  }).join();
  const std::size_t before = threads_of_process();
  for (int i = 0; i < 20; ++i) {
    std::thread([] {
      const ThreadLimit guard(4);
      parallel_for(4, 1, [](std::int64_t, std::int64_t) {});
    }).join();
  }
  std::size_t now = threads_of_process();
  for (int wait = 0; wait < 500 && now > before; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    now = threads_of_process();
  }
  CHECK(now <= before);
}

TEST_CASE("a forked child, which has no helpers, computes alone") {
  const ThreadLimit guard(3);
  const auto sum = [] {
    std::vector<std::int64_t> partial(3);
    parallel_for(1000, 1, [&](std::int64_t begin, std::int64_t end, int part) {
      for (std::int64_t i = begin; i < end; ++i) partial[static_cast<std::size_t>(part)] += i;
    });
    return partial[0] + partial[1] + partial[2];
  };
  CHECK(sum() == 499500);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(sum() == 499500 ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}
