// Streams, events, host functions and copies: what CUDA orders is ordered, and what it does not order shows.
#include <cmath>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/device_array.h"
#include "tests/cudasim/test/kernels.h"
#include "tests/support/catch.h"

namespace cudasim::test {
namespace {

constexpr int kCount = 256;

class PinnedArray {
 public:
  explicit PinnedArray(unsigned flags = cudaHostAllocDefault) {
    void* data = nullptr;
    require_ok(cudaHostAlloc(&data, kCount * sizeof(float), flags));
    data_ = static_cast<float*>(data);
  }
  ~PinnedArray() { cudaFreeHost(data_); }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  float* data() const { return data_; }
  void fill(float value) {
    for (int i = 0; i < kCount; ++i) data_[i] = value;
  }

 private:
  float* data_ = nullptr;
};

// Adds 1 to zeros in one stream and copies the result in another; returns what the copy saw.
float add_then_copy(bool wait_for_event) {
  const DeviceArray<float> x(std::vector<float>(kCount, 0.0f)), y(kCount);
  const NonBlockingStream first, second;
  const EventHandle added;
  require_ok(start(add_value, 1, kCount, first, x.data(), 1.0f, kCount));
  require_ok(cudaEventRecord(added, first));
  if (wait_for_event) require_ok(cudaStreamWaitEvent(second, added, 0));
  require_ok(start(copy_values, 1, kCount, second, x.data(), y.data(), kCount));
  require_ok(cudaStreamSynchronize(second));
  require_ok(cudaStreamSynchronize(first));
  return y.values()[7];
}

std::vector<StreamOrder> all_orders() {
  return {{StreamOrder::lazy},
          {StreamOrder::eager},
          {StreamOrder::random, 1},
          {StreamOrder::random, 2},
          {StreamOrder::random, 3}};
}

}  // namespace

TEST_CASE("an event orders two streams, in every order of operations") {
  const FreshMachine fresh;
  for (const StreamOrder& order : all_orders()) {
    set_stream_order(order);
    CHECK(add_then_copy(true) == 1.0f);
  }
}

TEST_CASE("a missing wait for an event shows: always when lazy, for some seed when random, never when eager") {
  const FreshMachine fresh;
  set_stream_order({StreamOrder::lazy});
  CHECK(add_then_copy(false) == 0.0f);
  int wrong = 0;
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    set_stream_order({StreamOrder::random, seed});
    wrong += add_then_copy(false) != 1.0f ? 1 : 0;
  }
  CHECK(wrong >= 1);
  set_stream_order({StreamOrder::eager});
  CHECK(add_then_copy(false) == 1.0f);
}

TEST_CASE("with computing off what is queued is checked and counted, and touches no memory") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(kCount, 0.0f)), y(std::vector<float>(kCount, 2.0f));
  const NonBlockingStream stream;
  set_computing(false);
  reset_counters();
  require_ok(start(add_value, 1, kCount, stream, x.data(), 1.0f, kCount));
  require_ok(cudaMemcpyAsync(y.data(), x.data(), kCount * sizeof(float), cudaMemcpyDeviceToDevice, stream));
  require_ok(cudaStreamSynchronize(stream));
  CHECK(counters().kernels == 1);
  CHECK(start(add_value, 1, 100'000, stream, x.data(), 1.0f, kCount) != cudaSuccess);
  CHECK(x.values()[7] == 0.0f);
  // Copies are copied.
  CHECK(y.values()[7] == 0.0f);
  set_computing(true);
  require_ok(start(add_value, 1, kCount, stream, x.data(), 1.0f, kCount));
  require_ok(cudaStreamSynchronize(stream));
  CHECK(x.values()[7] == 1.0f);
}

TEST_CASE("a random order is the same for the same seed") {
  const FreshMachine fresh;
  const auto run = [] {
    reset();
    set_stream_order({StreamOrder::random, 5});
    std::vector<float> seen;
    for (int i = 0; i < 20; ++i) seen.push_back(add_then_copy(false));
    return seen;
  };
  CHECK(run() == run());
}

TEST_CASE("a lazy wait runs only what it needs") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(kCount, 0.0f)), y(std::vector<float>(kCount, 0.0f));
  const NonBlockingStream first, second;
  const EventHandle first_done, second_done;
  require_ok(start(add_value, 1, kCount, first, x.data(), 1.0f, kCount));
  require_ok(cudaEventRecord(first_done, first));
  require_ok(start(add_value, 1, kCount, second, y.data(), 1.0f, kCount));
  require_ok(cudaEventRecord(second_done, second));
  require_ok(cudaStreamSynchronize(second));
  CHECK(cudaEventQuery(second_done) == cudaSuccess);
  CHECK(cudaEventQuery(first_done) == cudaErrorNotReady);
  // "Not ready" is no error to be told later.
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a program that asks again and again gets there") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(kCount, 0.0f));
  const NonBlockingStream stream;
  for (int i = 0; i < 10; ++i) require_ok(start(add_value, 1, kCount, stream, x.data(), 1.0f, kCount));
  int asked = 0;
  while (cudaStreamQuery(stream) == cudaErrorNotReady && asked < 100) ++asked;
  CHECK(asked == 10);
  CHECK(x.values()[0] == 10.0f);
}

TEST_CASE("the legacy stream waits for blocking streams and they for it, but not for non-blocking ones") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(kCount, 0.0f)), y(kCount);
  cudaStream_t blocking = nullptr;
  require_ok(cudaStreamCreate(&blocking));
  require_ok(start(add_value, 1, kCount, blocking, x.data(), 1.0f, kCount));
  require_ok(start(copy_values, 1, kCount, nullptr, x.data(), y.data(), kCount));
  require_ok(start(add_value, 1, kCount, blocking, y.data(), 1.0f, kCount));
  require_ok(cudaStreamSynchronize(blocking));
  CHECK(y.values()[0] == 2.0f);
  const NonBlockingStream free_stream;
  require_ok(start(add_value, 1, kCount, free_stream, x.data(), 5.0f, kCount));
  CHECK(x.values()[0] == 1.0f);
  require_ok(cudaStreamDestroy(blocking));
  require_ok(cudaDeviceSynchronize());
  CHECK(x.values()[0] == 6.0f);
}

TEST_CASE("pinned memory is read and written when the copy runs, ordinary memory at the call") {
  const FreshMachine fresh;
  PinnedArray host;
  const DeviceArray<float> x(kCount);
  const NonBlockingStream stream;
  host.fill(1.0f);
  require_ok(cudaMemcpyAsync(x.data(), host.data(), x.nbytes(), cudaMemcpyHostToDevice, stream));
  host.fill(2.0f);
  require_ok(cudaStreamSynchronize(stream));
  CHECK(x.values()[0] == 2.0f);
  std::vector<float> ordinary(kCount, 3.0f);
  require_ok(cudaMemcpyAsync(x.data(), ordinary.data(), x.nbytes(), cudaMemcpyHostToDevice, stream));
  ordinary.assign(kCount, 4.0f);
  require_ok(cudaStreamSynchronize(stream));
  CHECK(x.values()[0] == 3.0f);
  // Reading pinned memory before the copy is waited for gives NaN, not by chance the right value.
  host.fill(3.0f);
  require_ok(cudaMemcpyAsync(host.data(), x.data(), x.nbytes(), cudaMemcpyDeviceToHost, stream));
  CHECK(std::isnan(host.data()[0]));
  require_ok(cudaStreamSynchronize(stream));
  CHECK(host.data()[0] == 3.0f);
}

TEST_CASE("a copy back into pinned memory does not spoil what a copy in the queue still reads") {
  const FreshMachine fresh;
  PinnedArray host;
  const DeviceArray<float> x(kCount);
  const NonBlockingStream stream;
  host.fill(1.0f);
  require_ok(cudaMemcpyAsync(x.data(), host.data(), x.nbytes(), cudaMemcpyHostToDevice, stream));
  require_ok(start(add_value, 1, kCount, stream, x.data(), 1.0f, kCount));
  require_ok(cudaMemcpyAsync(host.data(), x.data(), x.nbytes(), cudaMemcpyDeviceToHost, stream));
  require_ok(cudaStreamSynchronize(stream));
  CHECK(host.data()[0] == 2.0f);
}

TEST_CASE("kernels use mapped host memory at its own address") {
  const FreshMachine fresh;
  PinnedArray host(cudaHostAllocMapped);
  CHECK(std::isnan(host.data()[0]));
  host.fill(1.0f);
  void* device_data = nullptr;
  require_ok(cudaHostGetDevicePointer(&device_data, host.data(), 0));
  require_ok(start(add_value, 1, kCount, nullptr, static_cast<float*>(device_data), 2.0f, kCount));
  require_ok(cudaDeviceSynchronize());
  CHECK(host.data()[kCount - 1] == 3.0f);
}

TEST_CASE("copies check their ranges and directions") {
  const FreshMachine fresh;
  const DeviceArray<float> x(4), y(8);
  float host[8] = {};
  CHECK(cudaMemcpy(x.data(), host, 32, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host, x.data() + 2, 12, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(y.data(), x.data(), 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host, x.data(), 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemset(x.data(), 0, 17) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(x.data(), host, 16, cudaMemcpyDefault) == cudaSuccess);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("a copy of rows leaves the gaps alone") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(12, 0.0f));
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  require_ok(cudaMemcpy2DAsync(x.data(), 16, rows.data(), 8, 8, 3, cudaMemcpyHostToDevice, nullptr));
  CHECK(x.values() == std::vector<float>{1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0, 0});
  CHECK(cudaMemcpy2DAsync(x.data(), 4, rows.data(), 8, 8, 3, cudaMemcpyHostToDevice, nullptr) ==
        cudaErrorInvalidPitchValue);
}

TEST_CASE("host functions run in stream order and must not call CUDA") {
  const FreshMachine fresh;
  struct State {
    std::vector<int> order;
    cudaError_t inner = cudaSuccess;
  } state;
  const NonBlockingStream stream;
  const cudaHostFn_t first = [](void* data) {
    auto* s = static_cast<State*>(data);
    s->order.push_back(1);
    void* memory = nullptr;
    s->inner = cudaMalloc(&memory, 4);
  };
  const cudaHostFn_t second = [](void* data) { static_cast<State*>(data)->order.push_back(2); };
  require_ok(cudaLaunchHostFunc(stream, first, &state));
  require_ok(cudaLaunchHostFunc(stream, second, &state));
  CHECK(state.order.empty());
  require_ok(cudaStreamSynchronize(stream));
  CHECK(state.order == std::vector<int>{1, 2});
  CHECK(state.inner == cudaErrorNotPermitted);
}

TEST_CASE("events time what lies between them, if they were made for it") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(kCount, 0.0f));
  const EventHandle begin(cudaEventDefault), end(cudaEventDefault), untimed;
  float milliseconds = -1.0f;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorInvalidResourceHandle);
  require_ok(cudaEventRecord(begin, nullptr));
  require_ok(start(add_value, 1, kCount, nullptr, x.data(), 1.0f, kCount));
  require_ok(cudaEventRecord(end, nullptr));
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorNotReady);
  require_ok(cudaEventSynchronize(end));
  require_ok(cudaEventElapsedTime(&milliseconds, begin, end));
  CHECK(milliseconds > 0.0f);
  require_ok(cudaEventRecord(untimed, nullptr));
  require_ok(cudaEventSynchronize(untimed));
  CHECK(cudaEventElapsedTime(&milliseconds, begin, untimed) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("a stream or event of another device is refused") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(kCount, 0.0f));
  require_ok(cudaSetDevice(1));
  cudaStream_t other = nullptr;
  require_ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  require_ok(cudaSetDevice(0));
  CHECK(start(add_value, 1, kCount, other, x.data(), 1.0f, kCount) == cudaErrorInvalidResourceHandle);
  const EventHandle event;
  CHECK(cudaEventRecord(event, other) == cudaErrorInvalidResourceHandle);
  // Waiting for another device's event is allowed.
  require_ok(cudaEventRecord(event, nullptr));
  CHECK(cudaStreamWaitEvent(other, event, 0) == cudaSuccess);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  require_ok(cudaStreamDestroy(other));
  CHECK(cudaStreamSynchronize(other) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(other) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("copies between devices work without peer access") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(kCount, 4.0f));
  require_ok(cudaSetDevice(1));
  const DeviceArray<float> y(kCount);
  require_ok(cudaMemcpyPeerAsync(y.data(), 1, x.data(), 0, x.nbytes(), nullptr));
  CHECK(y.values()[3] == 4.0f);
  CHECK(cudaMemcpyPeerAsync(y.data(), 0, x.data(), 1, x.nbytes(), nullptr) == cudaErrorInvalidValue);
}

TEST_CASE("more operations than the queue holds run in order") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(kCount, 0.0f));
  for (int i = 0; i < 5000; ++i) require_ok(start(add_value, 1, 1, nullptr, x.data(), 1.0f, 1));
  CHECK(x.values()[0] == 5000.0f);
}

TEST_CASE("memory in stream order is there when the stream gets there, and gone when it passes the free") {
  const FreshMachine fresh;
  const NonBlockingStream first, second;
  const auto use_in = [&](cudaStream_t user) {
    void* data = nullptr;
    require_ok(cudaMallocAsync(&data, kCount * sizeof(float), first));
    auto* x = static_cast<float*>(data);
    require_ok(cudaMemsetAsync(x, 0, kCount * sizeof(float), user));
    require_ok(cudaStreamSynchronize(user));
    require_ok(cudaStreamSynchronize(first));
    float seen = -1.0f;
    require_ok(cudaMemcpy(&seen, x, sizeof(seen), cudaMemcpyDeviceToHost));
    require_ok(cudaFreeAsync(data, first));
    CHECK(cudaFreeAsync(data, first) == cudaErrorInvalidValue);
    require_ok(cudaStreamSynchronize(first));
    CHECK(cudaMemset(data, 0, 4) == cudaErrorInvalidValue);
    return seen;
  };
  CHECK(use_in(first) == 0.0f);
  CHECK(std::isnan(use_in(second)));
  cudaMemPool_t pool = nullptr;
  require_ok(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t threshold = 1 << 20, back = 0;
  require_ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  require_ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &back));
  CHECK(back == threshold);
  require_ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &back));
  CHECK(back == 0);
}

}  // namespace cudasim::test
