// How kernels run: indices, barriers, warp operations, atomics, device functions, launch errors.
#include <cuda_bf16.h>

#include <cmath>
#include <numeric>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/device_array.h"
#include "tests/cudasim/test/kernels.h"
#include "tests/support/catch.h"

namespace cudasim::test {

FreshMachine::FreshMachine() {
  reset();
  set_stream_order({StreamOrder::lazy});
  set_thread_order(ThreadOrder::forward);
}
FreshMachine::~FreshMachine() { reset(); }

namespace {

std::vector<float> ramp(int n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

__global__ void write_indices(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[i] = static_cast<int>(i);
}

struct WarpResults {
  int index, up, down, exchange, narrow, reduced, maximum;
  unsigned ballot, same;
  int any, all, count;
};

__global__ void use_warp(WarpResults* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const unsigned all = 0xffffffffu;
  WarpResults result = {};
  result.index = __shfl_sync(all, lane * 10, 5);
  result.up = __shfl_up_sync(all, lane, 3);
  result.down = __shfl_down_sync(all, lane, 3);
  result.exchange = __shfl_xor_sync(all, lane, 1);
  result.narrow = __shfl_sync(all, lane, 0, 8);
  result.reduced = __reduce_add_sync(all, lane - 16);
  result.maximum = __reduce_max_sync(all, lane - 40);
  result.ballot = __ballot_sync(all, lane % 3 == 0);
  result.same = __match_any_sync(all, lane / 8);
  result.any = __any_sync(all, lane == 31);
  result.all = __all_sync(all, lane < 31);
  result.count = __syncthreads_count(lane < 7);
  out[lane] = result;
}

__global__ void use_half_warp(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane < 16) {
    out[lane] = __shfl_down_sync(0x0000ffffu, lane, 8);
  } else {
    out[lane] = __shfl_sync(0xffff0000u, lane, 16);
  }
}

struct AtomicResults {
  int sum;
  float float_sum;
  double double_sum;
  unsigned long long wide;
  int largest, smallest;
  unsigned bits, wrapped, swapped;
};

__global__ void use_atomics(AtomicResults* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&out->sum, i);
  atomicAdd(&out->float_sum, 0.5f);
  atomicAdd(&out->double_sum, 0.25);
  atomicAdd(&out->wide, 1ull << 33);
  atomicMax(&out->largest, i * 3);
  atomicMin(&out->smallest, -i);
  atomicOr(&out->bits, 1u << (i % 32));
  atomicInc(&out->wrapped, 9u);
  unsigned expected = out->swapped;
  while (true) {
    const unsigned seen = atomicCAS(&out->swapped, expected, expected + 2);
    if (seen == expected) break;
    expected = seen;
  }
}

__global__ void use_functions(float* out, const __nv_bfloat16* halves) {
  out[0] = rsqrtf(4.0f);
  out[1] = __expf(1.0f);
  out[2] = __fdividef(1.0f, 8.0f);
  out[3] = __bfloat162float(halves[0]);
  out[4] = __bfloat162float(__float2bfloat16_rn(1.00390625f));
  out[5] = static_cast<float>(__umulhi(0x80000000u, 6u));
  out[6] = static_cast<float>(__popc(0xf0f0u) * 100 + __ffs(8) * 10 + __clz(1));
  out[7] = static_cast<float>(min(3, 5) * 10 + max(2u, 7u));
  const float4 four = __ldg(reinterpret_cast<const float4*>(out));
  out[8] = four.x + four.z;
  out[9] = static_cast<float>(__float2int_rn(2.5f) + __float2int_rz(1e20f) % 1000);
  out[10] = __int_as_float(__float_as_int(1.5f));
  out[11] = static_cast<float>(warpSize);
  out[12] = max(std::nanf(""), 3.0f);
}

struct Arguments {
  float* out;
  int n;
  float value;
};

__global__ void take_struct(Arguments arguments) {
  if (static_cast<int>(threadIdx.x) < arguments.n) arguments.out[threadIdx.x] = arguments.value;
}

__global__ void leave_early(float* out, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  __syncthreads();
  out[threadIdx.x] = 1.0f;
}

}  // namespace

TEST_CASE("kernels compute, in both orders of threads") {
  const FreshMachine fresh;
  const ThreadOrder order = GENERATE(ThreadOrder::forward, ThreadOrder::reverse);
  set_thread_order(order);
  const int n = 1000;
  const DeviceArray<float> a(ramp(n)), b(ramp(n)), c(n), total(std::vector<float>{0.0f});
  require_ok(start(add_vectors, 8, 128, nullptr, a.data(), b.data(), c.data(), n));
  const std::vector<float> sums = c.values();
  CHECK(sums[0] == 0.0f);
  CHECK(sums[999] == 1998.0f);
  require_ok(start(sum_values, 2, 256, nullptr, a.data(), total.data(), n));
  CHECK(total.values()[0] == 499500.0f);
}

TEST_CASE("grids and blocks have three dimensions") {
  const FreshMachine fresh;
  set_thread_order(GENERATE(ThreadOrder::forward, ThreadOrder::reverse));
  const dim3 grid(3, 2, 2), block(4, 3, 2);
  const std::size_t count = 12 * 24;
  const DeviceArray<int> out(count);
  require_ok(start(write_indices, grid, block, nullptr, out.data()));
  const std::vector<int> values = out.values();
  for (std::size_t i = 0; i < count; ++i) REQUIRE(values[i] == static_cast<int>(i));
}

TEST_CASE("warp operations give what the manual says") {
  const FreshMachine fresh;
  set_thread_order(GENERATE(ThreadOrder::forward, ThreadOrder::reverse));
  const DeviceArray<WarpResults> out(32);
  require_ok(start(use_warp, 1, 32, nullptr, out.data()));
  const std::vector<WarpResults> results = out.values();
  unsigned thirds = 0;
  for (int lane = 0; lane < 32; lane += 3) thirds |= 1u << lane;
  for (int lane = 0; lane < 32; ++lane) {
    const WarpResults& r = results[static_cast<std::size_t>(lane)];
    INFO("lane " << lane);
    CHECK(r.index == 50);
    CHECK(r.up == (lane >= 3 ? lane - 3 : lane));
    CHECK(r.down == (lane + 3 < 32 ? lane + 3 : lane));
    CHECK(r.exchange == (lane ^ 1));
    CHECK(r.narrow == lane / 8 * 8);
    CHECK(r.reduced == -16);
    CHECK(r.maximum == -9);
    CHECK(r.ballot == thirds);
    CHECK(r.same == 0xffu << (lane / 8 * 8));
    CHECK(r.any == 1);
    CHECK(r.all == 0);
    CHECK(r.count == 7);
  }
}

TEST_CASE("halves of a warp may go separate ways") {
  const FreshMachine fresh;
  const DeviceArray<int> out(32);
  require_ok(start(use_half_warp, 1, 32, nullptr, out.data()));
  const std::vector<int> values = out.values();
  CHECK(values[3] == 11);
  // Lane 12 reads lane 20, which is outside the mask.
  CHECK(values[12] == -1);
  CHECK(values[20] == 16);
}

TEST_CASE("atomics of every type add up") {
  const FreshMachine fresh;
  const DeviceArray<AtomicResults> out(1);
  require_ok(cudaMemset(out.data(), 0, out.nbytes()));
  require_ok(start(use_atomics, 4, 64, nullptr, out.data()));
  const AtomicResults result = out.values()[0];
  CHECK(result.sum == 255 * 256 / 2);
  CHECK(result.float_sum == 128.0f);
  CHECK(result.double_sum == 64.0);
  CHECK(result.wide == 256ull << 33);
  CHECK(result.largest == 765);
  CHECK(result.smallest == -255);
  CHECK(result.bits == 0xffffffffu);
  CHECK(result.wrapped == 6);
  CHECK(result.swapped == 512);
}

TEST_CASE("device functions give what the manual says") {
  const FreshMachine fresh;
  const DeviceArray<float> out(16);
  const DeviceArray<__nv_bfloat16> halves(std::vector<__nv_bfloat16>{__float2bfloat16(-2.5f)});
  require_ok(start(use_functions, 1, 1, nullptr, out.data(), halves.data()));
  const std::vector<float> values = out.values();
  CHECK(values[0] == 0.5f);
  CHECK(values[1] == std::exp(1.0f));
  CHECK(values[2] == 0.125f);
  CHECK(values[3] == -2.5f);
  // Half way between 1 and the next bfloat16 goes to the even one.
  CHECK(values[4] == 1.0f);
  CHECK(values[5] == 3.0f);
  CHECK(values[6] == 871.0f);
  CHECK(values[7] == 37.0f);
  CHECK(values[8] == 0.625f);
  CHECK(values[9] == 2.0f + 2147483647 % 1000);
  CHECK(values[10] == 1.5f);
  CHECK(values[11] == 32.0f);
  CHECK(values[12] == 3.0f);
}

TEST_CASE("dynamic shared memory is the block's own, and large pieces must be asked for") {
  const FreshMachine fresh;
  const DeviceArray<float> x(ramp(64));
  float* data = x.data();
  void* arguments[] = {&data};
  require_ok(cudaLaunchKernel(reverse_in_shared, 1, 64, arguments, 64 * sizeof(float), nullptr));
  CHECK(x.values()[0] == 63.0f);
  CHECK(x.values()[63] == 0.0f);
  const std::size_t large = 100 << 10;
  CHECK(cudaLaunchKernel(reverse_in_shared, 1, 64, arguments, large, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(reverse_in_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) ==
        cudaErrorInvalidValue);
  require_ok(cudaFuncSetAttribute(reverse_in_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  CHECK(cudaLaunchKernel(reverse_in_shared, 1, 64, arguments, large, nullptr) == cudaSuccess);
  require_ok(cudaDeviceSynchronize());
}

TEST_CASE("pointers inside a struct argument work") {
  const FreshMachine fresh;
  const DeviceArray<float> out(4);
  require_ok(start(take_struct, 1, 32, nullptr, Arguments{out.data(), 4, 7.0f}));
  CHECK(out.values() == std::vector<float>(4, 7.0f));
}

TEST_CASE("threads that have ended do not hold up a barrier") {
  const FreshMachine fresh;
  const DeviceArray<float> out(std::vector<float>(32, 0.0f));
  require_ok(start(leave_early, 1, 32, nullptr, out.data(), 20));
  CHECK(out.values()[19] == 1.0f);
  CHECK(out.values()[20] == 0.0f);
}

TEST_CASE("a missing barrier gives a wrong sum in one of the two orders of threads") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(1024, 1.0f));
  int wrong = 0;
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::reverse}) {
    set_thread_order(order);
    const DeviceArray<float> total(std::vector<float>{0.0f});
    // What an earlier block left in shared memory must not help.
    const DeviceArray<float> other(std::vector<float>{0.0f});
    require_ok(start(sum_values_without_barrier, 1, 256, nullptr, x.data(), total.data(), 1024));
    wrong += total.values()[0] != 1024.0f ? 1 : 0;
  }
  CHECK(wrong >= 1);
}

TEST_CASE("an impossible launch is refused once, and the reason is told once") {
  const FreshMachine fresh;
  const DeviceArray<float> x(8);
  CHECK(start(add_value, 1, 2048, nullptr, x.data(), 1.0f, 8) == cudaErrorInvalidConfiguration);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(start(add_value, 0, 32, nullptr, x.data(), 1.0f, 8) == cudaErrorInvalidConfiguration);
  CHECK(start(add_value, 1, dim3(1, 1, 65), nullptr, x.data(), 1.0f, 8) == cudaErrorInvalidConfiguration);
  CHECK(start(add_value, dim3(1, 65536), 1, nullptr, x.data(), 1.0f, 8) == cudaErrorInvalidConfiguration);
  const int not_a_kernel = 0;
  CHECK(cudaLaunchKernel(static_cast<const void*>(&not_a_kernel), 1, 1, nullptr, 0, nullptr) ==
        cudaErrorInvalidDeviceFunction);
  CHECK(counters().kernels == 0);
}

TEST_CASE("occupancy is that of the chip") {
  const FreshMachine fresh;
  int blocks = 0;
  require_ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add_value, 256, 0));
  CHECK(blocks == 8);
  require_ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add_value, 32, 0));
  CHECK(blocks == 32);
  require_ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add_value, 128, 40 << 10));
  CHECK(blocks == 5);
  int grid = 0, block = 0;
  require_ok(cudaOccupancyMaxPotentialBlockSize(&grid, &block, add_value));
  CHECK(block == 1024);
  CHECK(grid == 4);
  cudaFuncAttributes attributes = {};
  require_ok(cudaFuncGetAttributes(&attributes, add_value));
  CHECK(attributes.binaryVersion == 90);
  const char* name = nullptr;
  require_ok(cudaFuncGetName(&name, add_value));
  CHECK(std::string(name) == "cudasim::test::add_value");
}

}  // namespace cudasim::test
