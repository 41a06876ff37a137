// Failures that tests inject, counters, and the interface for the faces of libraries.
#include <thread>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/internal.h"
#include "tests/cudasim/test/device_array.h"
#include "tests/cudasim/test/kernels.h"
#include "tests/support/catch.h"

namespace cudasim::test {
namespace {

constexpr int kRanks = 2;

// A small program that checks every call and gives everything back.
cudaError_t careful_program() {
  const int n = 64;
  float host[64] = {};
  void* data = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaMalloc(&data, sizeof(host));
  auto* x = static_cast<float*>(data);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cudaMemcpyAsync(x, host, sizeof(host), cudaMemcpyHostToDevice, stream);
  if (error == cudaSuccess) error = start(add_value, 1, n, stream, x, 1.0f, n);
  if (error == cudaSuccess) error = cudaEventRecord(event, stream);
  if (error == cudaSuccess) error = cudaEventSynchronize(event);
  for (const cudaError_t ended : {event != nullptr ? cudaEventDestroy(event) : cudaSuccess,
                                  stream != nullptr ? cudaStreamDestroy(stream) : cudaSuccess, cudaFree(data)}) {
    if (error == cudaSuccess) error = ended;
  }
  return error;
}

}  // namespace

TEST_CASE("every call can be made to fail, and a careful program notices and leaks nothing") {
  const FreshMachine fresh;
  clear_failures();
  require_ok(careful_program());
  const std::int64_t calls = calls_made();
  CHECK(calls == 10);
  for (std::int64_t nth = 1; nth <= calls; ++nth) {
    CAPTURE(nth);
    clear_failures();
    fail_nth("", nth, cudaErrorUnknown);
    CHECK(careful_program() == cudaErrorUnknown);
    CHECK(cudaGetLastError() == cudaErrorUnknown);
    CHECK(leaks().empty());
    // Once only.
    CHECK(careful_program() == cudaSuccess);
  }
}

TEST_CASE("a function can be made to fail from some call on") {
  const FreshMachine fresh;
  fail_from_nth("cudaMalloc", 2, cudaErrorMemoryAllocation);
  void* data = nullptr;
  void* other = nullptr;
  require_ok(cudaMalloc(&data, 4));
  for (int i = 0; i < 3; ++i) CHECK(cudaMalloc(&other, 4) == cudaErrorMemoryAllocation);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  clear_failures();
  require_ok(cudaMalloc(&other, 4));
  require_ok(cudaFree(data));
  require_ok(cudaFree(other));
}

TEST_CASE("a machine without devices says so") {
  const FreshMachine fresh;
  set_device_count(0);
  int count = -7;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == -7);
  void* data = nullptr;
  CHECK(cudaMalloc(&data, 4) == cudaErrorNoDevice);
  CHECK(cudaGetLastError() == cudaErrorNoDevice);
  set_device_count(3);
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 3);
}

TEST_CASE("errors have the names of the manual") {
  CHECK(std::string(cudaGetErrorName(cudaErrorIllegalAddress)) == "cudaErrorIllegalAddress");
  CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))) == "unrecognized error code");
}

TEST_CASE("the device is like an H100 with few multiprocessors") {
  const FreshMachine fresh;
  cudaDeviceProp prop = {};
  require_ok(cudaGetDeviceProperties(&prop, 1));
  CHECK(prop.major == 9);
  CHECK(prop.minor == 0);
  CHECK(prop.multiProcessorCount == 2);
  CHECK(prop.sharedMemPerBlockOptin == 227 << 10);
  CHECK(std::string(prop.name).find("Simulated") == 0);
  int value = 0;
  require_ok(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
  CHECK(value == 9);
  CHECK(cudaGetDeviceProperties(&prop, 2) == cudaErrorInvalidDevice);
}

TEST_CASE("work is counted and traced") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(32, 0.0f));
  reset_counters();
  set_tracing(true);
  const NonBlockingStream stream;
  require_ok(cudaMemsetAsync(x.data(), 0, 128, stream));
  declare_next_launch({{x.data(), 128, false}, {x.data(), 128, true}});
  require_ok(start(add_value, 1, 32, stream, x.data(), 1.0f, 32));
  require_ok(cudaStreamSynchronize(stream));
  const Counters counted = counters();
  CHECK(counted.kernels == 1);
  CHECK(counted.fills == 1);
  CHECK(counted.host_waits == 1);
  CHECK(counted.allocations == 0);
  CHECK(counted.bytes_read == 128);
  CHECK(counted.bytes_written == 256);
  const std::vector<OpRecord> records = trace();
  REQUIRE(records.size() == 2);
  CHECK(records[0].kind == OpKind::fill);
  CHECK(records[0].name == "cudaMemsetAsync");
  CHECK(records[1].name == "cudasim::test::add_value");
  CHECK(records[1].stream == records[0].stream);
  CHECK(records[1].bytes_read == 128);
  CHECK_FALSE(records[1].in_graph);
}

TEST_CASE("a library's work is queued, sees device memory through views, and declares what it uses") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(8, 3.0f)), y(8);
  const float* from = x.data();
  float* to = y.data();
  const auto body = [from, to] {
    const float* source = host_view(from, 32, false);
    float* destination = host_view(to, 32, true);
    for (int i = 0; i < 8; ++i) destination[i] = 2.0f * source[i];
  };
  require_ok(enqueue(nullptr, "double", OpKind::library_call, {{from, 32, false}, {to, 32, true}}, body));
  CHECK(y.values()[7] == 6.0f);
  CHECK(counters().library_calls == 1);
  CHECK(enqueue(nullptr, "too long", OpKind::library_call, {{from, 36, false}}, [] {}) == cudaErrorInvalidValue);
  // Freed before it runs.
  void* gone = nullptr;
  require_ok(cudaMallocAsync(&gone, 32, nullptr));
  require_ok(cudaFreeAsync(gone, nullptr));
  require_ok(enqueue(nullptr, "late", OpKind::library_call, {{gone, 32, false}},
                     [gone] { host_view(static_cast<float*>(gone), 32, false); }));
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}

TEST_CASE("a library call can be made to fail with its own status") {
  const FreshMachine fresh;
  fail_nth_library_call("cublasSgemm", 2, 13);
  CHECK(injected_library("cublasSgemm") == 0);
  CHECK(injected_library("cublasCreate") == 0);
  CHECK(injected_library("cublasSgemm") == 13);
  CHECK(injected_library("cublasSgemm") == 0);
}

TEST_CASE("handles of libraries are tracked") {
  const FreshMachine fresh;
  int object = 0;
  handle_created("cuBLAS handle", &object);
  CHECK(handle_alive("cuBLAS handle", &object));
  CHECK(leaks().size() == 1);
  CHECK(handle_destroyed("cuBLAS handle", &object));
  CHECK_FALSE(handle_destroyed("cuBLAS handle", &object));
}

TEST_CASE("a collective runs when all ranks are there, whichever waits") {
  const FreshMachine fresh;
  float* data[kRanks] = {};
  std::shared_ptr<Collective> collective;
  float seen[kRanks] = {};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      if (cudaSetDevice(rank) != cudaSuccess) return;
      const DeviceArray<float> x(std::vector<float>(16, static_cast<float>(rank + 1)));
      {
        const Lock lock;
        data[rank] = x.data();
      }
      const auto join = [&] {
        if (collective == nullptr) {
          collective = make_collective(kRanks, [&data] {
            float* views[kRanks] = {host_view(data[0], 64, true), host_view(data[1], 64, true)};
            for (int i = 0; i < 16; ++i) views[0][i] = views[1][i] = views[0][i] + views[1][i];
          });
        }
        return collective;
      };
      require_ok(enqueue_collective(nullptr, "all_reduce", {{x.data(), 64, false}, {x.data(), 64, true}}, join));
      require_ok(cudaDeviceSynchronize());
      seen[rank] = x.values()[15];
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(seen[0] == 3.0f);
  CHECK(seen[1] == 3.0f);
}

}  // namespace cudasim::test
