// Device memory: what is out of bounds, freed, of another device or not declared is found.
#include <cmath>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/device_array.h"
#include "tests/cudasim/test/kernels.h"
#include "tests/support/catch.h"

#if defined(__SANITIZE_ADDRESS__)
#define CUDASIM_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDASIM_TEST_ASAN 1
#endif
#endif

namespace cudasim::test {
namespace {

bool report_says(const std::string& text) { return last_report().find(text) != std::string::npos; }

__global__ void write_at(float* x, long index) { x[index] = 1.0f; }
#ifndef CUDASIM_TEST_ASAN
__global__ void read_at(const float* x, long index, float* out) { *out = x[index]; }
#endif

struct Table {
  float* rows[2];
};
__global__ void follow_table(const Table* table) { table->rows[0][0] = 1.0f; }

// Runs a kernel that faults; returns what the wait for it returned.
template <class... Parameters, class... Arguments>
cudaError_t run(void (*kernel)(Parameters...), Arguments... arguments) {
  require_ok(start(kernel, 1, 1, nullptr, arguments...));
  return cudaDeviceSynchronize();
}

}  // namespace

TEST_CASE("fresh device memory is NaN") {
  const FreshMachine fresh;
  for (const std::size_t count : {std::size_t{3}, std::size_t{100000}, std::size_t{3} << 20}) {
    const DeviceArray<float> x(count);
    const std::vector<float> values = x.values();
    CHECK(std::isnan(values.front()));
    CHECK(std::isnan(values.back()));
  }
}

TEST_CASE("allocations are aligned to 256 bytes and addresses are not used twice") {
  const FreshMachine fresh;
  void* first = nullptr;
  void* second = nullptr;
  require_ok(cudaMalloc(&first, 100));
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 256 == 0);
  require_ok(cudaFree(first));
  require_ok(cudaMalloc(&second, 100));
  CHECK(first != second);
  CHECK(cudaFree(first) == cudaErrorInvalidValue);
  CHECK(cudaFree(static_cast<char*>(second) + 4) == cudaErrorInvalidValue);
  require_ok(cudaFree(second));
  CHECK(cudaMalloc(&first, 0) == cudaSuccess);
  CHECK(first == nullptr);
}

TEST_CASE("memory runs out at the limit, and what was freed counts again") {
  const FreshMachine fresh;
  set_device_memory(1 << 20);
  void* first = nullptr;
  void* second = nullptr;
  require_ok(cudaMalloc(&first, 600 << 10));
  std::size_t free_nbytes = 0, total = 0;
  require_ok(cudaMemGetInfo(&free_nbytes, &total));
  CHECK(total == 1 << 20);
  CHECK(free_nbytes == 424 << 10);
  CHECK(cudaMalloc(&second, 600 << 10) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&second, ~std::size_t{0} - 100) == cudaErrorMemoryAllocation);
  require_ok(cudaFree(first));
  CHECK(cudaMalloc(&second, 600 << 10) == cudaSuccess);
  require_ok(cudaFree(second));
}

TEST_CASE("a kernel that leaves an allocation ends with an error that stays") {
  const FreshMachine fresh;
  const DeviceArray<float> x(1024);
  CHECK(run(write_at, x.data(), 3000L) == cudaErrorIllegalAddress);
  CHECK(report_says("write_at"));
  CHECK(report_says("byte 12000 of live allocation"));
  void* data = nullptr;
  CHECK(cudaMalloc(&data, 4) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  // The other device is well.
  require_ok(cudaSetDevice(1));
  const DeviceArray<float> y(std::vector<float>{1.0f});
  CHECK(y.values()[0] == 1.0f);
  require_ok(cudaSetDevice(0));
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}

#ifndef CUDASIM_TEST_ASAN  // Which ends the process at such a write: see the planted faults.
TEST_CASE("writing one element past the end, or before the beginning, is found when the kernel ends") {
  const FreshMachine fresh;
  const DeviceArray<float> x(5);
  const long index = GENERATE(5L, -1L);
  CHECK(run(write_at, x.data(), index) == cudaErrorIllegalAddress);
  CHECK(report_says(index == 5 ? "overrun: byte 20" : "overrun: byte -4"));
}

TEST_CASE("reading one element past the end gives NaN") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(5, 1.0f)), out(1);
  require_ok(run(read_at, static_cast<const float*>(x.data()), 5L, out.data()));
  CHECK(std::isnan(out.values()[0]));
}
#endif

TEST_CASE("a kernel that uses freed memory ends with an error") {
  const FreshMachine fresh;
  void* data = nullptr;
  require_ok(cudaMalloc(&data, 64));
  require_ok(cudaFree(data));
  CHECK(run(write_at, static_cast<float*>(data), 0L) == cudaErrorIllegalAddress);
  CHECK(report_says("freed allocation"));
}

TEST_CASE("memory of another device is out of reach without peer access") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>{0.0f});
  require_ok(cudaSetDevice(1));
  int can = 0;
  require_ok(cudaDeviceCanAccessPeer(&can, 1, 0));
  CHECK(can == 1);
  SECTION("without") {
    CHECK(run(write_at, x.data(), 0L) == cudaErrorIllegalAddress);
    CHECK(report_says("device 0"));
  }
  SECTION("with") {
    require_ok(cudaDeviceEnablePeerAccess(0, 0));
    CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
    CHECK(run(write_at, x.data(), 0L) == cudaSuccess);
    CHECK(x.values()[0] == 1.0f);
  }
}

TEST_CASE("ordinary host memory is out of a kernel's reach") {
  const FreshMachine fresh;
  float host = 0.0f;
  CHECK(run(write_at, &host, 0L) == cudaErrorIllegalAddress);
  CHECK(host == 0.0f);
  CHECK(report_says("ordinary host memory"));
}

TEST_CASE("registered host memory is within a kernel's reach") {
  const FreshMachine fresh;
  float host = 0.0f;
  require_ok(cudaHostRegister(&host, sizeof(host), cudaHostRegisterDefault));
  CHECK(cudaHostRegister(&host, sizeof(host), cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(run(write_at, &host, 0L) == cudaSuccess);
  CHECK(host == 1.0f);
  require_ok(cudaHostUnregister(&host));
  CHECK(cudaHostUnregister(&host) == cudaErrorHostMemoryNotRegistered);
}

TEST_CASE("a pointer inside device memory is not translated, and says so when it is used") {
  const FreshMachine fresh;
  const DeviceArray<float> x(4);
  const DeviceArray<Table> table(std::vector<Table>{Table{{x.data(), x.data()}}});
  CHECK(run(follow_table, static_cast<const Table*>(table.data())) == cudaErrorIllegalAddress);
  CHECK(report_says("untranslated"));
}

TEST_CASE("a launch that declares its accesses reaches them and nothing else") {
  const FreshMachine fresh;
  const int n = 64;
  const DeviceArray<float> a(std::vector<float>(128, 1.0f)), b(std::vector<float>(n, 2.0f)), c(n);
  const std::size_t half = n * sizeof(float);
  const auto add = [&](std::vector<Access> accesses) {
    reset_counters();
    declare_next_launch(accesses);
    // The second half of a.
    require_ok(start(add_vectors, 1, n, nullptr, a.data() + n, b.data(), c.data(), n));
    return cudaDeviceSynchronize();
  };
  SECTION("all of them") {
    CHECK(add({{a.data() + n, half, false}, {b.data(), half, false}, {c.data(), half, true}}) == cudaSuccess);
    CHECK(counters().bytes_read == 512);
    CHECK(counters().bytes_written == 256);
    CHECK(c.values()[n - 1] == 3.0f);
  }
  SECTION("the wrong half of one") {
    CHECK(add({{a.data(), half, false}, {b.data(), half, false}, {c.data(), half, true}}) == cudaErrorIllegalAddress);
  }
  SECTION("one missing") {
    CHECK(add({{a.data() + n, half, false}, {c.data(), half, true}}) == cudaErrorIllegalAddress);
  }
  SECTION("the output as an input") {
    CHECK(add({{a.data() + n, half, false}, {b.data(), half, false}, {c.data(), half, false}}) ==
          cudaErrorIllegalAddress);
    CHECK(report_says("byte 0 of a declared range of 256 bytes that is only read"));
  }
  SECTION("a range that does not exist") {
    declare_next_launch({{a.data(), 4096, false}});
    CHECK(start(add_vectors, 1, n, nullptr, a.data(), b.data(), c.data(), n) == cudaErrorInvalidValue);
  }
#ifndef CUDASIM_TEST_ASAN
  SECTION("one element too few") {
    CHECK(add({{a.data() + n, half, false}, {b.data(), half, false}, {c.data(), half - 4, true}}) ==
          cudaErrorIllegalAddress);
    CHECK(report_says("overrun"));
  }
#endif
}

TEST_CASE("in-place launches declare a range as read and written") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(32, 1.0f));
  declare_next_launch({{x.data(), x.nbytes(), false}, {x.data(), x.nbytes(), true}});
  require_ok(start(add_value, 1, 32, nullptr, x.data(), 1.0f, 32));
  CHECK(x.values()[31] == 2.0f);
  // It was for one launch only.
  require_ok(start(add_value, 1, 32, nullptr, x.data(), 1.0f, 32));
  CHECK(x.values()[31] == 3.0f);
}

TEST_CASE("a range that is only written holds nothing before, and what a kernel leaves out after") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(32, 1.0f)), y(std::vector<float>(32, 1.0f));
  declare_next_launch({{x.data(), x.nbytes(), true}});
  require_ok(start(add_value, 1, 31, nullptr, x.data(), 1.0f, 31));
  CHECK(std::isnan(x.values()[0]));
  CHECK(std::isnan(x.values()[31]));
  declare_next_launch({{y.data(), 16, false}, {y.data(), y.nbytes(), true}});
  require_ok(start(add_value, 1, 32, nullptr, y.data(), 1.0f, 32));
  CHECK(y.values()[3] == 2.0f);
  CHECK(std::isnan(y.values()[4]));
}

TEST_CASE("pointers are told apart") {
  const FreshMachine fresh;
  const DeviceArray<float> x(4);
  float host = 0.0f;
  void* pinned = nullptr;
  require_ok(cudaMallocHost(&pinned, 16));
  cudaPointerAttributes attributes = {};
  require_ok(cudaPointerGetAttributes(&attributes, x.data() + 1));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  require_ok(cudaPointerGetAttributes(&attributes, pinned));
  CHECK(attributes.type == cudaMemoryTypeHost);
  require_ok(cudaPointerGetAttributes(&attributes, &host));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  require_ok(cudaFreeHost(pinned));
}

TEST_CASE("what a program does not give back is listed") {
  const FreshMachine fresh;
  CHECK(leaks().empty());
  void* data = nullptr;
  void* pinned = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  require_ok(cudaMalloc(&data, 100));
  require_ok(cudaMallocHost(&pinned, 100));
  require_ok(cudaStreamCreate(&stream));
  require_ok(cudaEventCreate(&event));
  const std::vector<Leak> found = leaks();
  REQUIRE(found.size() == 4);
  CHECK(found[0].kind == "stream");
  CHECK(found[1].kind == "event");
  require_ok(cudaStreamDestroy(stream));
  require_ok(cudaEventDestroy(event));
  require_ok(cudaFree(data));
  require_ok(cudaFreeHost(pinned));
  CHECK(leaks().empty());
}

}  // namespace cudasim::test
