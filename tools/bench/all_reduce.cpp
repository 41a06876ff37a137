#include "tools/bench/all_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "nccl_comm/text_exchange.h"

namespace heddle::tools::bench {
namespace {

// Two checks with different numbers, so that what the first one left behind does not pass the second.
constexpr int kRounds = 2;
// Against clocks that stand still.
constexpr int kMaxWarmUp = 1000;

// splitmix64: every bit of the result depends on every bit of x. Source: Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Calls function(T{}) with the element type.
template <class Function>
auto with_type(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::f32: return function(float{});
    case DType::bf16: return function(bfloat16{});
    case DType::i64: return function(std::int64_t{});
    default: throw InvalidArgument(join_text("all-reduces of ", dtype, " are not offered"));
  }
}

std::int64_t exact_result(DType dtype, comm::ReduceOp op, int ranks, std::int64_t i, int round) {
  std::int64_t result = all_reduce_input(dtype, 0, i, round);
  for (int r = 1; r < ranks; ++r) {
    const std::int64_t next = all_reduce_input(dtype, r, i, round);
    result = op == comm::ReduceOp::sum ? result + next : std::max(result, next);
  }
  return result;
}

// Through float, which holds what is not i64: one rounding.
template <class T>
T rounded(std::int64_t value) {
  return static_cast<T>(static_cast<float>(value));
}
template <>
std::int64_t rounded<std::int64_t>(std::int64_t value) {
  return value;
}

std::string text_of(std::int64_t value) { return fmt::format("{}", value); }
std::string text_of(float value) { return fmt::format("{}", value); }
std::string text_of(bfloat16 value) { return text_of(static_cast<float>(value)); }

bool equal(std::int64_t a, std::int64_t b) { return a == b; }
bool equal(float a, float b) { return a == b; }
bool equal(bfloat16 a, bfloat16 b) { return static_cast<float>(a) == static_cast<float>(b); }

// How many elements of this rank are wrong after an all-reduce of new numbers, and the first.
template <class T>
std::int64_t count_wrong(comm::Communicator& communicator, const AllReduceCase& what, Tensor& x, int round,
                         std::string& problem) {
  std::vector<T> values(static_cast<std::size_t>(what.numel));
  for (std::int64_t i = 0; i < what.numel; ++i) {
    values[static_cast<std::size_t>(i)] = rounded<T>(all_reduce_input(what.dtype, communicator.rank(), i, round));
  }
  x.copy_from(Tensor::from_values(values, {what.numel}));
  communicator.all_reduce(x, what.op, "check");
  const std::vector<T> results = x.to_vector<T>();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < what.numel; ++i) {
    const T value = results[static_cast<std::size_t>(i)];
    const T expected = rounded<T>(exact_result(what.dtype, what.op, what.ranks, i, round));
    if (equal(value, expected)) continue;
    if (wrong++ == 0 && problem.empty()) {
      problem = fmt::format("rank {}: element {} of {} is {}, expected {}", communicator.rank(), i, what.numel,
                            text_of(value), text_of(expected));
    }
  }
  return wrong;
}

// The longest of the ranks' times, on all ranks, whose decisions must be the same.
double longest(comm::Communicator& communicator, double seconds, Device device) {
  Tensor x = Tensor::from_values(std::vector<float>{static_cast<float>(seconds)}, {1}, device);
  communicator.all_reduce(x, comm::ReduceOp::max, "times");
  return x.item();
}

Timing time_calls(comm::Communicator& communicator, comm::ReduceOp op, Tensor& x, int repeats) {
  const Device device = x.device();
  const std::unique_ptr<Stopwatch> stopwatch = runtime_for(device).make_stopwatch();
  const auto seconds_of = [&](std::int64_t calls) {
    const Stream stream = current_stream(device);
    communicator.barrier("begin of a measurement");
    stopwatch->start(stream);
    for (std::int64_t i = 0; i < calls; ++i) communicator.all_reduce(x, op, "measurement");
    return longest(communicator, stopwatch->stop(stream) / static_cast<double>(calls), device);
  };
  double fastest = seconds_of(1), total = fastest;
  for (int i = 1; i < kMaxWarmUp && (i < kWarmUpCalls || total < kWarmUpSeconds); ++i) {
    const double seconds = seconds_of(1);
    fastest = std::min(fastest, seconds);
    total += seconds;
  }
  const std::int64_t calls = calls_in_group(fastest);
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of(calls));
  return summarize(std::move(seconds), calls);
}

}  // namespace

double AllReduceResult::algorithm_bytes_per_second() const {
  return timing && timing->median > 0 ? static_cast<double>(what.nbytes()) / timing->median : 0.0;
}

double AllReduceResult::bus_bytes_per_second() const {
  return algorithm_bytes_per_second() * 2 * (what.ranks - 1) / what.ranks;
}

std::int64_t all_reduce_input(DType dtype, int rank, std::int64_t i, int round) {
  const std::uint64_t bits = mix(mix(static_cast<std::uint64_t>(i) * 2 + static_cast<std::uint64_t>(round)) +
                                 static_cast<std::uint64_t>(rank));
  // bf16 holds whole numbers up to 256, and f32 the sums of 4096 ranks.
  if (dtype == DType::bf16) return static_cast<std::int64_t>(bits % 256) - 128;
  const std::int64_t small = static_cast<std::int64_t>(bits % 4096) - 2048;
  // Both halves of the word have a part in it.
  return dtype == DType::i64 ? (small << 34) + static_cast<std::int64_t>(bits >> 40) : small;
}

double all_reduce_expected(DType dtype, comm::ReduceOp op, int ranks, std::int64_t i, int round) {
  const std::int64_t exact = exact_result(dtype, op, ranks, i, round);
  return with_type(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, bfloat16>) {
      return double{static_cast<float>(rounded<T>(exact))};
    } else {
      return static_cast<double>(rounded<T>(exact));
    }
  });
}

AllReduceResult measure_all_reduce(comm::Communicator& communicator, const AllReduceCase& what, Device device,
                                   int repeats) {
  HEDDLE_CHECK(what.ranks == communicator.world_size(), "a case of ", what.ranks, " ranks on ",
               communicator.world_size());
  AllReduceResult result{.what = what};
  Tensor x = communicator.make_exchanged({what.numel}, what.dtype, device);
  std::string problem;
  std::int64_t wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    wrong += with_type(what.dtype,
                       [&](auto type) { return count_wrong<decltype(type)>(communicator, what, x, round, problem); });
  }
  Tensor total = Tensor::from_values(std::vector<std::int64_t>{wrong}, {1}, device);
  communicator.all_reduce(total, comm::ReduceOp::sum, "wrong elements");
  result.wrong = total.to_vector<std::int64_t>()[0];
  for (const std::string& of_rank : comm::all_gather_text(communicator, problem, device, "wrong elements")) {
    if (result.problem.empty()) result.problem = of_rank;
  }
  // A sum of zeros stays one, however often it is taken.
  x.fill_zero();
  const WorkCounts before = runtime_for(device).work_counts();
  communicator.all_reduce(x, what.op, "count");
  const WorkCounts after = runtime_for(device).work_counts();
  result.work = {.launches = after.launches - before.launches,
                 .read_nbytes = after.read_nbytes - before.read_nbytes,
                 .written_nbytes = after.written_nbytes - before.written_nbytes};
  if (repeats > 0 && result.wrong == 0) result.timing = time_calls(communicator, what.op, x, repeats);
  return result;
}

}  // namespace heddle::tools::bench
