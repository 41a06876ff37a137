// A program with one fault, named by its argument, for the tests of faults that end a process. Prints "survived" and
// ends with 0 if nothing was found.
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/internal.h"
#include "tests/cudasim/test/device_array.h"
#include "tests/cudasim/test/kernels.h"

namespace cudasim::test {
namespace {

__global__ void divergent_barrier(float* x) {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    x[threadIdx.x] = 1.0f;
    __syncthreads();
  }
}

__global__ void missing_lanes(float* x) {
  if (threadIdx.x < 16) x[threadIdx.x] = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 1);
}

__global__ void ended_lanes(float* x) {
  if (threadIdx.x >= 16) x[threadIdx.x] = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 1);
}

__global__ void barrier_against_shuffle(float* x) {
  if (threadIdx.x == 0) __syncthreads();
  x[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
}

__global__ void outside_own_mask(float* x) { x[threadIdx.x] = __shfl_sync(0x1u, 1.0f, 0); }

__global__ void write_past(float* x, int n) { x[n] = 1.0f; }

void launch(void (*kernel)(float*), unsigned threads) {
  const DeviceArray<float> x(64);
  require_ok(start(kernel, 1, threads, nullptr, x.data()));
  require_ok(cudaDeviceSynchronize());
}

void host_read() {
  const DeviceArray<float> x(64);
  std::printf("%f\n", static_cast<double>(x.data()[3]));
}

void host_write_while_a_kernel_runs() {
  const DeviceArray<float> x(64);
  struct Inside {
    float* data;
  } inside{x.data()};
  const cudaHostFn_t touch = [](void* data) { static_cast<Inside*>(data)->data[0] = 1.0f; };
  require_ok(cudaLaunchHostFunc(nullptr, touch, &inside));
  require_ok(cudaDeviceSynchronize());
}

// A collective of two ranks of which one comes.
void missing_rank() {
  set_peer_deadline_ms(200);
  const DeviceArray<float> x(16);
  const auto collective = make_collective(2, [] {});
  require_ok(enqueue_collective(nullptr, "all_reduce", {{x.data(), 64, true}}, [=] { return collective; }));
  require_ok(cudaDeviceSynchronize());
}

// Two ranks queue two collectives in opposite orders.
void crossed_collectives() {
  const auto first = make_collective(2, [] {});
  const auto second = make_collective(2, [] {});
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([=] {
      require_ok(cudaSetDevice(rank));
      const auto& early = rank == 0 ? first : second;
      const auto& late = rank == 0 ? second : first;
      require_ok(enqueue_collective(nullptr, "first", {}, [=] { return early; }));
      require_ok(enqueue_collective(nullptr, "second", {}, [=] { return late; }));
      require_ok(cudaDeviceSynchronize());
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

void undeclared_view() {
  const DeviceArray<float> x(16), y(16);
  const float* other = y.data();
  require_ok(enqueue(nullptr, "greedy", OpKind::library_call, {{x.data(), 64, false}},
                     [other] { host_view(other, 64, false); }));
  require_ok(cudaDeviceSynchronize());
}

// Found when the kernel ends, or by AddressSanitizer at the write.
void overrun() {
  const DeviceArray<float> x(5);
  require_ok(start(write_past, 1, 1, nullptr, x.data(), 5));
  require_ok(cudaDeviceSynchronize());
}

// Prints what a kernel sees that should have waited for another stream.
void missing_event() {
  const DeviceArray<float> x(std::vector<float>(32, 0.0f));
  const NonBlockingStream first, second;
  require_ok(start(add_value, 1, 32, first, x.data(), 1.0f, 32));
  require_ok(start(add_value, 1, 32, second, x.data(), 2.0f, 32));
  require_ok(cudaStreamSynchronize(second));
  std::printf("%g\n", static_cast<double>(x.values()[0]));
  require_ok(cudaDeviceSynchronize());
}

// Sums without the barrier between the writing and the reading of shared memory.
void missing_barrier() {
  const DeviceArray<float> x(std::vector<float>(128, 1.0f)), total(std::vector<float>{0.0f});
  require_ok(start(sum_values_without_barrier, 1, 64, nullptr, x.data(), total.data(), 128));
  require_ok(cudaDeviceSynchronize());
}

// Reads pinned memory before it waits for the copy into it.
void pinned_read() {
  const DeviceArray<float> x(std::vector<float>(32, 1.0f));
  void* memory = nullptr;
  require_ok(cudaMallocHost(&memory, x.nbytes()));
  const auto* values = static_cast<const float*>(memory);
  const NonBlockingStream stream;
  require_ok(cudaMemcpyAsync(memory, x.data(), x.nbytes(), cudaMemcpyDeviceToHost, stream));
  std::printf("%g\n", static_cast<double>(values[7]));
  require_ok(cudaStreamSynchronize(stream));
  require_ok(cudaFreeHost(memory));
}

// Two streams and the host, ordered as they must be; shared memory, events, a host function, pinned memory.
void right_program() {
  const int n = 128;
  const DeviceArray<float> x(std::vector<float>(n, 1.0f)), total(std::vector<float>{0.0f});
  void* memory = nullptr;
  require_ok(cudaMallocHost(&memory, sizeof(float)));
  auto* result = static_cast<float*>(memory);
  const NonBlockingStream first, second;
  const EventHandle added, summed;
  for (int step = 0; step < 3; ++step) {
    require_ok(start(add_value, 1, 64, first, x.data(), 1.0f, n));
    require_ok(cudaEventRecord(added, first));
    require_ok(cudaStreamWaitEvent(second, added, 0));
    require_ok(cudaMemsetAsync(total.data(), 0, sizeof(float), second));
    require_ok(start(sum_values, 1, 64, second, x.data(), total.data(), n));
    require_ok(cudaMemcpyAsync(result, total.data(), sizeof(float), cudaMemcpyDeviceToHost, second));
    require_ok(cudaLaunchHostFunc(
        second, [](void* data) { *static_cast<float*>(data) += 1.0f; }, result));
    require_ok(cudaEventRecord(summed, second));
    require_ok(cudaStreamWaitEvent(first, summed, 0));
    // Shared memory in the other stream at the same time.
    require_ok(start(sum_values, 1, 64, first, x.data(), total.data(), n));
    require_ok(cudaStreamSynchronize(second));
    std::printf("%g\n", static_cast<double>(*result));
    require_ok(cudaStreamSynchronize(first));
  }
  require_ok(cudaFreeHost(memory));
}

struct Fault {
  const char* name;
  void (*run)();
};
constexpr Fault kFaults[] = {
    {"divergent_barrier", [] { launch(divergent_barrier, 32); }},
    {"missing_lanes", [] { launch(missing_lanes, 32); }},
    {"ended_lanes", [] { launch(ended_lanes, 32); }},
    {"barrier_against_shuffle", [] { launch(barrier_against_shuffle, 32); }},
    {"outside_own_mask", [] { launch(outside_own_mask, 32); }},
    {"host_read", host_read},
    {"host_write", host_write_while_a_kernel_runs},
    {"missing_rank", missing_rank},
    {"crossed_collectives", crossed_collectives},
    {"undeclared_view", undeclared_view},
    {"overrun", overrun},
    {"missing_event", missing_event},
    {"missing_barrier", missing_barrier},
    {"pinned_read", pinned_read},
    {"right_program", right_program},
};

}  // namespace
}  // namespace cudasim::test

int main(int count, char** arguments) {
  for (const cudasim::test::Fault& fault : cudasim::test::kFaults) {
    if (count == 2 && std::strcmp(arguments[1], fault.name) == 0) {
      fault.run();
      std::puts("survived");
      return 0;
    }
  }
  std::fprintf(stderr, "usage: planted_faults NAME\n");
  return 2;
}
