// One contract for every communicator: whole numbers, so that sums are exact, on 1, 2, 3, 4 and 8 ranks; and what
// happens when ranks disagree, fail, leave or come late.
#include "engine/comm/communicator.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "engine/core/parallel.h"
#include "tests/nccl_comm/groups.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using comm::Communicator;
using comm::ReduceOp;
using heddle::test::contains;
using heddle::test::message_of;

namespace {

using testing::comm_errors;
using testing::group_kinds;
using testing::GroupKind;
using testing::RankResults;
using testing::run_group;

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};
constexpr comm::CommunicatorOptions kHasty{.timeout = std::chrono::seconds(1)};

// Runs body on every rank, once for each kind of group, device and number of ranks; body returns what is wrong, empty
// if nothing.
template <class Body>
void on_all_groups(const Body& body) {
  for (const GroupKind& kind : group_kinds()) {
    for (const Device device : kind.devices) {
      for (const int world_size : {1, 2, 3, 4, 8}) {
        if (world_size > kind.most_ranks) continue;
        CAPTURE(kind.name, device.to_string(), world_size);
        RankResults problems(world_size);
        run_group(kind, world_size, kPatient, [&](Communicator& communicator) {
          problems.add(communicator.rank(), body(communicator, kind.device_of(communicator.rank(), device)));
        });
        for (const std::string& problem : problems.texts()) CHECK(problem == "");
      }
    }
  }
}

template <class T>
T number(double value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return bfloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Element i of a rank: small whole numbers, exact in bf16 together with the sums of 8 ranks.
double element(int rank, std::int64_t i) { return static_cast<double>((i * 7 + rank * 3) % 13 - 6); }

template <class T>
Tensor values_of(int rank, std::int64_t n, Device device) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(number<T>(element(rank, i)));
  return Tensor::from_values(values, {n}, device);
}

// The first difference from expected(i), as text.
template <class T, class Expected>
std::string difference(const Tensor& x, const Expected& expected) {
  const std::vector<T> values = x.to_vector<T>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T wanted = number<T>(expected(static_cast<std::int64_t>(i)));
    if (std::memcmp(&values[i], &wanted, sizeof(T)) != 0) {
      return join_text(x.dtype(), " element ", i, " of ", x.shape(), " differs; ");
    }
  }
  return {};
}

double reduced(int ranks, std::int64_t i, ReduceOp op) {
  double total = element(0, i);
  for (int r = 1; r < ranks; ++r) {
    total = op == ReduceOp::sum ? total + element(r, i) : std::max(total, element(r, i));
  }
  return total;
}

template <class T>
std::string check_reductions(Communicator& c, Device device) {
  std::string problems;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
    // Less than a rank each, one each, no multiple, several blocks.
    for (const std::int64_t n : {1, 3, 8, 63, 65, 1000, 70'001}) {
      Tensor x = values_of<T>(c.rank(), n, device);
      const std::uint64_t version = x.version();
      c.all_reduce(x, op);
      problems += difference<T>(x, [&](std::int64_t i) { return reduced(c.world_size(), i, op); });
      if (c.world_size() > 1 && x.version() == version) problems += "all_reduce did not count as a change; ";

      const std::int64_t ranks = c.world_size();
      const Tensor whole = values_of<T>(c.rank(), n * ranks, device);
      Tensor part = Tensor::empty({n}, whole.dtype(), device);
      c.reduce_scatter(whole, part, op);
      problems += difference<T>(part, [&](std::int64_t i) { return reduced(c.world_size(), n * c.rank() + i, op); });
      problems += difference<T>(whole, [&](std::int64_t i) { return element(c.rank(), i); });
    }
  }
  return problems;
}

template <class T>
std::string check_copies(Communicator& c, Device device) {
  std::string problems;
  for (const std::int64_t n : {1, 5, 1000}) {
    for (int root = 0; root < c.world_size(); ++root) {
      Tensor x = values_of<T>(c.rank(), n, device);
      c.broadcast(x, root);
      problems += difference<T>(x, [&](std::int64_t i) { return element(root, i); });
    }
    const Tensor own = values_of<T>(c.rank(), n, device);
    Tensor all = Tensor::empty({c.world_size(), n}, own.dtype(), device);
    c.all_gather(own, all);
    problems += difference<T>(all, [&](std::int64_t i) { return element(static_cast<int>(i / n), i % n); });
  }
  return problems;
}

}  // namespace

TEST_CASE("reductions of whole numbers are exact on every rank") {
  on_all_groups([](Communicator& c, Device device) {
    return check_reductions<float>(c, device) + check_reductions<bfloat16>(c, device) +
           check_reductions<std::int64_t>(c, device);
  });
}

TEST_CASE("broadcast and all_gather move every dtype") {
  on_all_groups([](Communicator& c, Device device) {
    return check_copies<float>(c, device) + check_copies<bfloat16>(c, device) + check_copies<std::int64_t>(c, device) +
           check_copies<std::int32_t>(c, device);
  });
}

TEST_CASE("a sum that is not exact has the same bits on every rank and in every run") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 4) continue;
    CAPTURE(kind.name);
    constexpr int kRanks = 4, kRuns = 3;
    for (const Device device : kind.devices) {
      std::vector<std::vector<float>> sums(kRuns * kRanks);
      for (int run = 0; run < kRuns; ++run) {
        run_group(kind, kRanks, kPatient, [&](Communicator& c) {
          std::vector<float> values;
          for (int i = 0; i < 5000; ++i) values.push_back(std::sin(static_cast<float>(i * (c.rank() + 1))));
          Tensor x = Tensor::from_values(values, {5000}, kind.device_of(c.rank(), device));
          c.all_reduce(x, ReduceOp::sum);
          sums[static_cast<std::size_t>(run * kRanks + c.rank())] = x.to_vector<float>();
        });
      }
      for (const std::vector<float>& other : sums) CHECK(other == sums.front());
      if (!kind.adds_in_rank_order) continue;
      for (const int i : {0, 17, 4999}) {
        float sum = 0;
        for (int r = 0; r < kRanks; ++r) sum += std::sin(static_cast<float>(i * (r + 1)));
        CHECK(sums.front()[static_cast<std::size_t>(i)] == sum);
      }
    }
  }
}

TEST_CASE("bf16 is added in f32 and rounded once") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 4) continue;
    CAPTURE(kind.name);
    for (const Device device : kind.devices) {
      std::vector<float> result(2);
      run_group(kind, 4, kPatient, [&](Communicator& c) {
        // 256 + 1 + 1 + 1: each 1 alone would be lost in bf16 (8 bits), their sum rounds to 260.
        const std::vector<bfloat16> values(2, bfloat16(c.rank() == 0 ? 256.f : 1.f));
        Tensor x = Tensor::from_values(values, {2}, kind.device_of(c.rank(), device));
        c.all_reduce(x, ReduceOp::sum);
        if (c.rank() == 2) result = {static_cast<float>(x.to_vector<bfloat16>()[0]), 0.f};
      });
      CHECK((result[0] == 260.f || !kind.adds_in_rank_order));
    }
  }
}

TEST_CASE("NaN and infinity pass through reductions") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 3) continue;
    CAPTURE(kind.name);
    for (const Device device : kind.devices) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        for (int with_nan = 0; with_nan < 3; ++with_nan) {
          std::vector<float> result;
          run_group(kind, 3, kPatient, [&](Communicator& c) {
            const bool here = c.rank() == with_nan;
            const std::vector<float> values{here ? std::nanf("") : 1.f,
                                            here ? std::numeric_limits<float>::infinity() : 1.f};
            Tensor x = Tensor::from_values(values, {2}, kind.device_of(c.rank(), device));
            c.all_reduce(x, op);
            if (c.rank() == 1) result = x.to_vector<float>();
          });
          CHECK(std::isnan(result[0]));
          CHECK(std::isinf(result[1]));
        }
      }
    }
  }
}

TEST_CASE("no rank passes a barrier before the last has come") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 4) continue;
    CAPTURE(kind.name);
    std::atomic<int> arrived{0};
    RankResults problems(4);
    run_group(kind, 4, kPatient, [&](Communicator& c) {
      for (int round = 1; round <= 50; ++round) {
        ++arrived;
        c.barrier();
        if (arrived < 4 * round) problems.add(c.rank(), "passed too early; ");
        c.barrier();
      }
    });
    for (const std::string& problem : problems.texts()) CHECK(problem == "");
  }
}

TEST_CASE("thousands of exchanges in a row keep the ranks apart from each other") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 3) continue;
    CAPTURE(kind.name);
    RankResults problems(3);
    run_group(kind, 3, kPatient, [&](Communicator& c) {
      for (std::int64_t i = 0; i < 3000; ++i) {
        Tensor x = Tensor::from_values(std::vector<std::int64_t>{i + c.rank()}, {1});
        c.all_reduce(x, ReduceOp::sum);
        if (x.item() != static_cast<double>(3 * i + 3)) problems.add(c.rank(), join_text("exchange ", i, "; "));
      }
    });
    for (const std::string& problem : problems.texts()) CHECK(problem == "");
  }
}

TEST_CASE("tensors that do not fit are refused before anything is exchanged") {
  for (const GroupKind& kind : group_kinds()) {
    CAPTURE(kind.name);
    auto group = kind.make(1, kPatient);
    Communicator& c = *group[0];
    Tensor undefined, bytes = Tensor::zeros({4}, DType::u8), x = Tensor::zeros({4}), y = Tensor::zeros({3});
    CHECK_THROWS_AS(c.all_reduce(undefined, ReduceOp::sum), InvalidArgument);
    CHECK(contains(message_of<Error>([&] { c.all_reduce(bytes, ReduceOp::sum); }), "u8"));
    CHECK(contains(message_of<Error>([&] { c.broadcast(x, 1); }), "root is rank 1 of 1"));
    CHECK(contains(message_of<Error>([&] { c.broadcast(x, -1); }), "root is rank -1"));
    CHECK(contains(message_of<Error>([&] { c.all_gather(x, y); }), "(3)"));
    CHECK(contains(message_of<Error>([&] { c.reduce_scatter(x, y, ReduceOp::sum); }), "(4)"));
    Tensor part = x.narrow(0, 4);
    CHECK(contains(message_of<Error>([&] { c.all_gather(part, x); }), "overlap"));
    CHECK_THROWS_AS(kind.make(0, kPatient), InvalidArgument);
    const int two = std::min(2, kind.most_ranks);
    CHECK_THROWS_AS(kind.make(two, {.timeout = std::chrono::milliseconds(0)}), InvalidArgument);
  }
}

TEST_CASE("ranks that disagree are told both sides, all of them") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 3) continue;
    CAPTURE(kind.name);
    const auto disagree = [&kind](const std::function<void(Communicator&)>& body,
                                  const std::vector<std::string>& both) {
      for (const std::string& error : comm_errors(kind, 3, kPatient, body)) {
        for (const std::string& part : both) CHECK(contains(error, part));
      }
    };
    disagree(
        [](Communicator& c) {
          Tensor x = Tensor::zeros({c.rank() == 2 ? 409'598 : 409'600});
          c.all_reduce(x, ReduceOp::sum);
        },
        {"rank 0", "409600 f32", "rank 2", "409598 f32"});
    disagree(
        [](Communicator& c) {
          Tensor x = Tensor::zeros({8}, c.rank() == 1 ? DType::bf16 : DType::f32);
          c.all_reduce(x, ReduceOp::sum);
        },
        {"f32", "rank 1", "bf16"});
    disagree(
        [](Communicator& c) {
          Tensor x = Tensor::zeros({8});
          c.all_reduce(x, c.rank() == 1 ? ReduceOp::max : ReduceOp::sum);
        },
        {"(sum)", "rank 1", "(max)"});
    disagree(
        [](Communicator& c) {
          Tensor x = Tensor::zeros({8});
          if (c.rank() == 1) {
            c.barrier();
          } else {
            c.broadcast(x, 0);
          }
        },
        {"broadcast of 8 f32", "rank 1", "barrier"});
    disagree(
        [](Communicator& c) {
          Tensor x = Tensor::zeros({8});
          c.broadcast(x, c.rank() == 1 ? 1 : 0);
        },
        {"from rank 0", "from rank 1"});
  }
}

TEST_CASE("a disagreement changes nobody's tensor, and ends the group") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 2) continue;
    CAPTURE(kind.name);
    RankResults results(2);
    run_group(kind, 2, kPatient, [&](Communicator& c) {
      Tensor x = Tensor::full({c.rank() + 1}, 5);
      try {
        c.all_reduce(x, ReduceOp::sum);
      } catch (const CommError&) {
        results.add(c.rank(), join_text(x.to_vector<float>()[0], " "));
      }
      try {
        c.barrier();
      } catch (const CommError& error) {
        results.add(c.rank(), error.what());
      }
    });
    for (const std::string& text : results.texts()) CHECK(contains(text, "5 the ranks disagree"));
  }
}

TEST_CASE("a rank that is late is named when the deadline passes") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 3) continue;
    CAPTURE(kind.name);
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = comm_errors(kind, 3, kHasty, [](Communicator& c) {
      if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
      Tensor x = Tensor::zeros({7});
      c.all_reduce(x, ReduceOp::sum, "bucket 4");
    });
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
    for (const std::string& error : errors) {
      CHECK(contains(error, "all_reduce of 7 f32"));
      CHECK(contains(error, "bucket 4"));
      CHECK(contains(error, "rank 1 of 3 did not come within 1 s"));
    }
  }
}

// A wait that ends a part of a millisecond before the deadline must not be taken for a lost connection.
TEST_CASE("a rank that is late is late, not gone, however the time is cut") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 2) continue;
    for (int round = 0; round < 12; ++round) {
      CAPTURE(kind.name, round);
      std::atomic<bool> told{false};
      const auto errors =
          comm_errors(kind, 2, {.timeout = std::chrono::milliseconds(300 + round)}, [&](Communicator& c) {
            c.barrier();
            if (c.rank() == 1) {
              while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
            try {
              c.barrier("a late one");
            } catch (const CommError&) {
              told = true;
              throw;
            }
          });
      CHECK(contains(errors[0], "rank 1 of 2 did not come within 0.3"));
    }
  }
}

TEST_CASE("a rank that has left is not waited for") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 3) continue;
    CAPTURE(kind.name);
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = comm_errors(kind, 3, kPatient, [](Communicator& c) {
      c.barrier();
      if (c.rank() != 2) c.barrier();
    });
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
    CHECK(contains(errors[0], "rank 2 of 3 has left"));
    CHECK(contains(errors[1], "rank 2 of 3 has left"));
    CHECK(errors[2] == "");
  }
}

TEST_CASE("what a rank throws ends the others and reaches the caller") {
  for (const GroupKind& kind : group_kinds()) {
    if (kind.most_ranks < 4) continue;
    CAPTURE(kind.name);
    std::atomic<int> told{0};
    const auto run = [&] {
      run_group(kind, 4, kPatient, [&](Communicator& c) {
        c.barrier();
        if (c.rank() == 3) throw IoError("/data/images", "cannot be read");
        try {
          c.barrier("step 5");
        } catch (const CommError& error) {
          if (std::string(error.what()).find("rank 3 of 4 has failed: /data/images: cannot be read") !=
              std::string::npos) {
            ++told;
          }
          throw;
        }
      });
    };
    CHECK_THROWS_AS(run(), IoError);
    CHECK(told == 3);
  }
}

TEST_CASE("rank threads share the processors that the program may use") {
  const int before = num_threads();
  set_num_threads(5);
  std::atomic<int> total{0};
  comm::run_rank_threads(2, kPatient, [&](Communicator&) { total += num_threads(); });
  CHECK(total == 4);
  total = 0;
  comm::run_rank_threads(8, kPatient, [&](Communicator&) { total += num_threads(); });
  CHECK(total == 8);
  set_num_threads(before);
}
