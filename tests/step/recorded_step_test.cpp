// StepGraph on a device that records, on the simulated CUDA.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/device/caching_allocator.h"
#include "engine/step/step_graph.h"
#include "engine/tensor/tensor.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/catch.h"

using namespace heddle;
using step::StepGraph;

namespace {

const Device kGpu = Device::cuda(0);

// A step with a temporary: total += 2 * increment.
class Counter {
 public:
  explicit Counter(float increment = 1, std::int64_t size = 1000)
      : increment_(Tensor::full({size}, increment, DType::f32, kGpu)),
        total_(Tensor::zeros({size}, DType::f32, kGpu)) {}

  void step() {
    ++calls;
    Backend& backend = backend_for(kGpu);
    Tensor twice = Tensor::empty_like(total_);
    backend.fill(twice, 0);
    backend.axpy(2, increment_, twice);
    backend.axpy(1, twice, total_);
    if (keep) last = twice;
  }
  // The total if all elements agree, else -1.
  double total() const {
    const std::vector<float> values = total_.to_vector<float>();
    for (const float value : values) {
      if (value != values.front()) return -1;
    }
    return double{values.front()};
  }

  int calls = 0;
  bool keep = false;
  Tensor last;

 private:
  Tensor increment_, total_;
};

}  // namespace

TEST_CASE("a step is called once, recorded once, and launched as one graph from then on") {
  StepGraph graph(kGpu);
  CHECK(graph.records());
  Counter counter;
  const auto step = [&] { counter.step(); };
  for (int i = 0; i < 2; ++i) CHECK(graph.run({.input = {64}}, step) == 1);
  CHECK(counter.calls == 2);
  runtime_for(kGpu).synchronize(current_stream(kGpu));
  cudasim::reset_counters();
  for (int i = 0; i < 5; ++i) CHECK(graph.run({.input = {64}}, step) == 1);
  const cudasim::Counters used = cudasim::counters();
  CHECK(counter.calls == 2);
  CHECK(used.graph_launches == 5);
  CHECK(used.kernels == 5 * 3);
  CHECK(used.host_waits == 0);
  CHECK(used.allocations == 0);
  CHECK(used.frees == 0);
  CHECK(used.copies_host_to_device + used.copies_device_to_host + used.copies_device_to_device == 0);
  CHECK(counter.total() == 14);
  CHECK(graph.runs() == 7);
}

TEST_CASE("a recorded step tells what it consists of, however many go into a launch") {
  for (const std::int64_t steps_per_launch : {1, 4}) {
    StepGraph graph(kGpu, {.steps_per_launch = steps_per_launch});
    Counter counter;
    Tensor source = Tensor::zeros({8}, DType::f32, kGpu), target = Tensor::zeros({8}, DType::f32, kGpu);
    const step::StepKey key{.input = {64}};
    const auto step = [&] {
      counter.step();
      target.copy_from(source);
    };
    CHECK_FALSE(graph.recorded_size(key).has_value());
    graph.run(key, step, steps_per_launch);
    // Called, not recorded.
    CHECK_FALSE(graph.recorded_size(key).has_value());
    graph.run(key, step, steps_per_launch);
    const std::optional<GraphSize> size = graph.recorded_size(key);
    REQUIRE(size.has_value());
    CHECK(size->kernels == 3);
    CHECK(size->copies == 1);
    CHECK(size->fills + size->others == 0);
    CHECK_FALSE(graph.recorded_size({.input = {65}}).has_value());
  }
}

TEST_CASE("a thread's queued work is counted, with the bytes that it touches") {
  DeviceRuntime& runtime = runtime_for(kGpu);
  Counter counter(1, 1000);
  const WorkCounts before = runtime.work_counts();
  counter.step();
  runtime.prepare_launch("own kernel");
  const WorkCounts after = runtime.work_counts();
  CHECK(after.launches - before.launches == 3 + 1);
  // fill writes; axpy reads both and writes one, twice.
  CHECK(after.read_nbytes - before.read_nbytes == 4 * 4000);
  CHECK(after.written_nbytes - before.written_nbytes == 3 * 4000);
  CHECK(runtime_for(Device::cpu()).work_counts().launches == 0);
  // An error names what a program announced.
  cudasim::fail_nth("cudaStreamSynchronize", 1, cudaErrorUnknown);
  CHECK_THROWS_WITH(runtime.synchronize(current_stream(kGpu)), Catch::Contains("own kernel"));
  cudasim::clear_failures();
}

TEST_CASE("eager tensors never get the memory of recorded steps, nor is any asked for after the first run of a key") {
  StepGraph graph(kGpu);
  Counter counter;
  const auto step = [&] { counter.step(); };
  graph.run({}, step);
  const AllocatorStats first = graph.memory();
  CHECK(first.reserved_nbytes > 0);
  CHECK(first.in_use_nbytes == 0);
  std::vector<Tensor> eager;
  for (int i = 0; i < 10; ++i) {
    eager.push_back(Tensor::full({1000}, 100 + i, DType::f32, kGpu));
    graph.run({}, step);
  }
  CHECK(graph.memory().device_allocations == first.device_allocations);
  CHECK(counter.total() == 22);
  for (int i = 0; i < 10; ++i) {
    CHECK(eager[static_cast<std::size_t>(i)].to_vector<float>() ==
          std::vector<float>(1000, 100.f + static_cast<float>(i)));
  }
}

TEST_CASE("several keys share the memory, and a key that was dropped is recorded again") {
  StepGraph graph(kGpu, {.max_keys = 2});
  Counter small(1, 10), medium(2, 1000), large(3, 100000);
  std::vector<Counter*> counters{&small, &medium, &large};
  for (int round = 0; round < 4; ++round) {
    for (std::uint32_t kind : {0u, 1u}) {
      graph.run({.kind = kind}, [&] { counters[kind]->step(); });
    }
  }
  CHECK(small.calls == 2);
  CHECK(medium.calls == 2);
  const std::size_t two = graph.memory().reserved_nbytes;
  for (int round = 0; round < 3; ++round) graph.run({.kind = 2}, [&] { large.step(); });
  for (int round = 0; round < 3; ++round) graph.run({.kind = 0}, [&] { small.step(); });
  CHECK(large.calls == 2);
  CHECK(small.calls == 4);
  CHECK(graph.memory().reserved_nbytes == two);
  CHECK(small.total() == 14);
  CHECK(medium.total() == 16);
  CHECK(large.total() == 18);
  graph.clear();
  CHECK(graph.memory().reserved_nbytes == 0);
  graph.run({.kind = 1}, [&] { medium.step(); });
  CHECK(medium.total() == 20);
}

TEST_CASE("several steps go into one launch where so many are wanted") {
  StepGraph graph(kGpu, {.steps_per_launch = 4});
  Counter counter;
  const auto step = [&] { counter.step(); };
  std::vector<std::int64_t> done;
  cudasim::reset_counters();
  for (std::int64_t left = 15; left > 0; left -= done.back()) done.push_back(graph.run({}, step, left));
  CHECK(done == std::vector<std::int64_t>{1, 4, 4, 4, 1, 1});
  CHECK(counter.calls == 1 + 4 + 1);
  CHECK(cudasim::counters().graph_launches == 5);
  CHECK(graph.runs() == 15);
  CHECK(counter.total() == 30);
}

TEST_CASE("an exception while a step is recorded comes through, and the next run records again") {
  StepGraph graph(kGpu);
  Counter counter;
  bool fail = false;
  const auto step = [&] {
    counter.step();
    if (fail) throw IoError("data", "is gone");
  };
  graph.run({}, step);
  fail = true;
  CHECK_THROWS_AS(graph.run({}, step), IoError);
  CHECK(graph.runs() == 1);
  // What was recorded before the exception has not happened.
  CHECK(counter.total() == 2);
  fail = false;
  for (int i = 0; i < 3; ++i) graph.run({}, step);
  CHECK(counter.total() == 8);
  CHECK(counter.calls == 3);
}

TEST_CASE("a step that cannot be recorded is refused with the reason, and the device works on") {
  StepGraph graph(kGpu);
  Counter counter;
  bool warm = true;
  double seen = 0;
  std::vector<float> source(1000, 1.f);
  Tensor target = Tensor::zeros({1000}, DType::f32, kGpu);
  const auto illegal = [&](int what) {
    counter.step();
    if (warm) return;
    if (what == 0) seen = counter.total();
    if (what == 1) target.copy_from(Tensor::wrap(source.data(), {1000}, DType::f32));
    if (what == 2) runtime_for(kGpu).is_done(current_stream(kGpu));
  };
  for (const int what : {0, 1, 2}) {
    INFO("case " << what);
    const step::StepKey key{.kind = static_cast<std::uint32_t>(what)};
    warm = true;
    graph.run(key, [&] { illegal(what); });
    warm = false;
    CHECK_THROWS_WITH(graph.run(key, [&] { illegal(what); }), Catch::Contains("inside a recorded step"));
  }
  CHECK(seen == 0);
  CHECK(counter.total() == 6);
  warm = true;
  for (const int what : {0, 1, 2}) graph.run({.kind = static_cast<std::uint32_t>(what)}, [&] { illegal(what); });
  CHECK(counter.total() == 12);
}

TEST_CASE("errors of CUDA while recording end the recording") {
  StepGraph graph(kGpu);
  Counter counter;
  const auto step = [&] { counter.step(); };
  graph.run({}, step);
  int failures = 0;
  for (const char* function : {"cudaStreamBeginCapture", "cudaLaunchKernel", "cudaStreamEndCapture",
                               "cudaGraphGetNodes", "cudaGraphInstantiate", "cudaGraphLaunch"}) {
    INFO(function);
    cudasim::fail_nth(function, 1, cudaErrorUnknown);
    try {
      graph.run({}, step);
    } catch (const DeviceError& error) {
      CHECK(std::string(error.what()).find("cudaErrorUnknown") != std::string::npos);
      ++failures;
    }
    cudasim::clear_failures();
  }
  CHECK(failures == 6);
  CHECK(graph.runs() == 1);
  graph.run({}, step);
  CHECK(counter.total() == 4);
}

TEST_CASE("a recording that finds no memory gets what is cached, or is reported as what it is") {
  CachingAllocator& allocator = allocator_for(kGpu);
  for (const char* function : {"cudaGraphInstantiate", "cudaGraphLaunch"}) {
    INFO(function);
    StepGraph graph(kGpu);
    Counter counter;
    const auto step = [&] { counter.step(); };
    graph.run({}, step);
    Tensor::empty({std::int64_t{40} << 20}, DType::u8, kGpu);
    const std::size_t cached = allocator.stats().reserved_nbytes;
    cudasim::fail_nth(function, 1, cudaErrorMemoryAllocation);
    graph.run({}, step);
    CHECK(counter.total() == 4);
    CHECK(allocator.stats().reserved_nbytes + (std::size_t{40} << 20) <= cached);

    graph.run({.kind = 1}, step);
    cudasim::fail_nth(function, 1, cudaErrorMemoryAllocation);
    cudasim::fail_nth(function, 1, cudaErrorMemoryAllocation);
    std::string message;
    try {
      graph.run({.kind = 1}, step);
    } catch (const OutOfMemory& error) {
      message = error.what();
    }
    CHECK(message.find("out of memory on cuda:0: " + std::string(function)) == 0);
    CHECK(message.find("cannot be recorded") == std::string::npos);
    cudasim::clear_failures();
    graph.run({.kind = 1}, step);
    CHECK(counter.total() == 8);
  }
}

TEST_CASE("what a step made and somebody kept holds the result of the latest step, and outlives the graphs") {
  Counter counter;
  counter.keep = true;
  {
    StepGraph graph(kGpu);
    for (int i = 0; i < 4; ++i) graph.run({}, [&] { counter.step(); });
    CHECK(counter.last.to_vector<float>() == std::vector<float>(1000, 2.f));
  }
  CHECK(counter.total() == 8);
  CHECK(counter.last.to_vector<float>() == std::vector<float>(1000, 2.f));
}

TEST_CASE("recording can be switched off, and several step graphs live side by side") {
  StepGraph plain(kGpu, {.enabled = false}), first(kGpu), second(kGpu);
  CHECK(!plain.records());
  Counter a, b(2), c(3);
  for (int i = 0; i < 4; ++i) {
    plain.run({}, [&] { a.step(); });
    first.run({}, [&] { b.step(); });
    second.run({}, [&] { c.step(); });
  }
  CHECK(a.calls == 4);
  CHECK(b.calls == 2);
  CHECK(a.total() == 8);
  CHECK(b.total() == 16);
  CHECK(c.total() == 24);
  CHECK(plain.memory().reserved_nbytes == 0);
}

TEST_CASE("a step graph stays on one stream") {
  StepGraph graph(kGpu);
  Counter counter;
  graph.run({}, [&] { counter.step(); });
  DeviceRuntime& runtime = runtime_for(kGpu);
  const Stream other = runtime.create_stream();
  {
    const StreamGuard guard(other);
    CHECK_THROWS_AS(graph.run({}, [&] { counter.step(); }), InvalidArgument);
  }
  runtime.destroy_stream(other);
  CHECK_THROWS_AS(StepGraph(kGpu, {.steps_per_launch = 0}), InvalidArgument);
}

TEST_CASE("recorded steps keep their memory when there is too little for another") {
  StepGraph graph(kGpu);
  Counter small(1, 1000), large(2, 8 << 20);
  for (int i = 0; i < 3; ++i) graph.run({.kind = 0}, [&] { small.step(); });
  allocator_for(kGpu).release_cached();
  cudasim::fail_from_nth("cudaMalloc", 1, cudaErrorMemoryAllocation);
  CHECK_THROWS_AS(graph.run({.kind = 1}, [&] { large.step(); }), OutOfMemory);
  cudasim::clear_failures();
  for (int i = 0; i < 2; ++i) graph.run({.kind = 0}, [&] { small.step(); });
  CHECK(small.total() == 10);
  for (int i = 0; i < 3; ++i) graph.run({.kind = 1}, [&] { large.step(); });
  CHECK(large.total() == 12);
  graph.run({.kind = 0}, [&] { small.step(); });
  CHECK(small.total() == 12);
}

TEST_CASE("nothing of a step graph is left when it is gone") {
  // "3 stream, 1 event"
  const auto alive = [] {
    allocator_for(kGpu).release_cached();
    std::map<std::string, int> counts;
    for (const cudasim::Leak& leak : cudasim::leaks()) ++counts[leak.kind];
    std::string text;
    for (const auto& [kind, count] : counts) text += std::to_string(count) + " " + kind + ", ";
    return text;
  };
  Counter counter;
  for (int i = 0; i < 2; ++i) counter.step();
  CHECK(counter.total() == 4);
  const std::string before = alive();
  {
    StepGraph graph(kGpu);
    for (int i = 0; i < 3; ++i) graph.run({}, [&] { counter.step(); });
    CHECK(counter.total() == 10);
  }
  CHECK(alive() == before);
}
