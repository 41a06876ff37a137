// Memory, streams, events and copies of a GPU, on the simulated CUDA. Its streams run as late as is legal, so that a
// missing wait shows.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "engine/device/caching_allocator.h"
#include "engine/device/cuda_plugin.h"
#include "engine/device/device_runtime.h"
#include "engine/tensor/tensor.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/catch.h"

using namespace heddle;

namespace {

const Device kGpu = Device::cuda(0);

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.f);
  return values;
}

}  // namespace

TEST_CASE("a simulated GPU says so, and reports what it is") {
  CHECK(load_cuda_plugin());
  CHECK(cuda_plugin_info().device_count >= 2);
  CHECK(!cuda_plugin_info().path.empty());
  const DeviceRuntime& runtime = runtime_for(kGpu);
  CHECK(runtime.is_simulated());
  CHECK(!runtime_for(Device::cpu()).is_simulated());
  const DeviceProperties properties = runtime.properties();
  CHECK(properties.name.find("Simulated") == 0);
  CHECK(properties.capability == "9.0");
  CHECK(properties.memory_nbytes > 0);
  CHECK(properties.versions.size() == 2);
  // The clocks, the bus and the units of an H100: 3.35 TB/s, and 128 multiply-adds a cycle of each multiprocessor.
  CHECK(properties.bytes_per_second == Approx(3.35e12).epsilon(0.01));
  CHECK(properties.f32_flops_per_second == Approx(2 * 1.755e9 * properties.multiprocessors * 128));
  CHECK(properties.bf16_flops_per_second == Approx(16 * properties.f32_flops_per_second));
  CHECK(properties.cache_nbytes > 0);
}

TEST_CASE("the default stream is one for all threads, and streams that were given back are handed out again") {
  DeviceRuntime& runtime = runtime_for(kGpu);
  const Stream usual = runtime.default_stream();
  CHECK(usual.handle != nullptr);
  CHECK(current_stream(kGpu) == usual);
  Stream elsewhere;
  std::thread([&] { elsewhere = current_stream(kGpu); }).join();
  CHECK(elsewhere == usual);
  const Stream other = runtime.create_stream();
  CHECK(other != usual);
  {
    const StreamGuard guard(other);
    CHECK(current_stream(kGpu) == other);
  }
  CHECK(current_stream(kGpu) == usual);
  runtime.destroy_stream(other);
  const Stream again = runtime.create_stream();
  CHECK(again == other);
  runtime.destroy_stream(again);
}

TEST_CASE("ordinary host memory may be changed as soon as a copy from it is queued, and nothing waits") {
  DeviceRuntime& runtime = runtime_for(kGpu);
  const Stream stream = current_stream(kGpu);
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{5} << 20}) {
    INFO(count << " elements");
    const std::vector<float> expected = numbers(count);
    std::vector<float> source = expected;
    Tensor y = Tensor::empty({static_cast<std::int64_t>(count)}, DType::f32, kGpu);
    runtime.copy_async(y.mutable_raw_data(), kGpu, source.data(), Device::cpu(), count * sizeof(float), stream);
    std::fill(source.begin(), source.end(), -1.f);
    CHECK((y.to_vector<float>() == expected));  // millions of elements, not to be printed
  }
  std::vector<float> source = numbers(100);
  Tensor y = Tensor::empty({100}, DType::f32, kGpu);
  cudasim::reset_counters();
  runtime.copy_async(y.mutable_raw_data(), kGpu, source.data(), Device::cpu(), 400, stream);
  CHECK(cudasim::counters().host_waits == 0);
  CHECK(cudasim::counters().allocations == 0);
  CHECK(cudasim::counters().copies_host_to_device == 1);
}

TEST_CASE("tensors travel between host and GPUs") {
  const std::vector<float> values = numbers(5000);
  const Tensor host = Tensor::from_values(values, {5000});
  const Tensor first = host.to(kGpu);
  CHECK(first.device() == kGpu);
  CHECK(first.clone().to_vector<float>() == values);
  const Tensor second = first.to(Device::cuda(1));
  CHECK(second.device() == Device::cuda(1));
  CHECK(second.to(Device::cpu()).to_vector<float>() == values);
  CHECK(second.to(kGpu).to_vector<float>() == values);
  Tensor zero = Tensor::empty({5000}, DType::f32, kGpu);
  zero.fill_zero();
  CHECK(zero.to_vector<float>() == std::vector<float>(5000, 0.f));
  CHECK(Tensor::empty({0}, DType::f32, kGpu).to_vector<float>().empty());
}

TEST_CASE("a copy to another GPU waits for what makes the values on the first") {
  const Device neighbour = Device::cuda(1);
  DeviceRuntime& runtime = runtime_for(kGpu);
  const std::vector<float> values = numbers(1000);
  const Tensor source = Tensor::from_values(values, {1000}, kGpu);
  Tensor first = Tensor::zeros({1000}, DType::f32, kGpu);
  runtime.synchronize(current_stream(kGpu));
  // Queued, and nobody has waited for it.
  first.copy_from(source);
  CHECK(first.to(neighbour).to_vector<float>() == values);

  const Stream other = runtime.create_stream();
  {
    const StreamGuard guard(other);
    first.fill_zero();
    Tensor second = Tensor::full({1000}, -1, DType::f32, neighbour);
    second.copy_from(first);
    CHECK(second.to_vector<float>() == std::vector<float>(1000, 0.f));
  }
  runtime.destroy_stream(other);
}

TEST_CASE("a tensor made of page-locked values does not change with them afterwards") {
  const HostBuffer buffer = runtime_for(kGpu).allocate_host(4000);
  auto* const host = static_cast<float*>(buffer.host);
  CHECK(is_page_locked(host));
  const std::vector<float> values = numbers(1000);
  CHECK_FALSE(is_page_locked(values.data()));
  std::copy(values.begin(), values.end(), host);
  const Tensor made = Tensor::from_values(std::span<const float>(host, 1000), {1000}, kGpu);
  std::fill_n(host, 1000, -1.f);
  CHECK(made.to_vector<float>() == values);
}

TEST_CASE("work of one stream waits for an event of another, also of another GPU") {
  DeviceRuntime& runtime = runtime_for(kGpu);
  const Stream first = runtime.create_stream(), second = runtime.create_stream();
  const std::vector<float> values = numbers(1000);
  const Tensor source = Tensor::from_values(values, {1000}, kGpu);
  Tensor between = Tensor::zeros({1000}, DType::f32, kGpu), result = Tensor::zeros({1000}, DType::f32, kGpu);
  runtime.synchronize(current_stream(kGpu));
  runtime.copy_async(between.mutable_raw_data(), kGpu, source.raw_data(), kGpu, 4000, first);
  runtime.wait(second, runtime.record(first));
  runtime.copy_async(result.mutable_raw_data(), kGpu, between.raw_data(), kGpu, 4000, second);
  CHECK(!runtime.is_done(second));
  runtime.synchronize(second);
  CHECK(runtime.is_done(second));
  CHECK(result.to_vector<float>() == values);

  DeviceRuntime& neighbour = runtime_for(Device::cuda(1));
  Tensor far = Tensor::zeros({1000}, DType::f32, Device::cuda(1));
  result.fill_zero();
  const Stream usual = current_stream(kGpu), distant = current_stream(Device::cuda(1));
  runtime.copy_async(result.mutable_raw_data(), kGpu, source.raw_data(), kGpu, 4000, usual);
  neighbour.wait(distant, runtime.record(usual));
  neighbour.copy_async(far.mutable_raw_data(), Device::cuda(1), result.raw_data(), kGpu, 4000, distant);
  CHECK(far.to_vector<float>() == values);
  runtime.destroy_stream(first);
  runtime.destroy_stream(second);
}

TEST_CASE("host memory for the device is zero, reached by both sides, and freed with its owner") {
  DeviceRuntime& runtime = runtime_for(kGpu);
  HostBuffer buffer = runtime.allocate_host(100);
  REQUIRE(buffer.host != nullptr);
  REQUIRE(buffer.device != nullptr);
  CHECK(std::vector<unsigned char>(100, 0) ==
        std::vector<unsigned char>(static_cast<unsigned char*>(buffer.host),
                                   static_cast<unsigned char*>(buffer.host) + 100));
  std::strcpy(static_cast<char*>(buffer.host), "told by the host");
  Tensor y = Tensor::empty({100}, DType::u8, kGpu);
  cudasim::reset_counters();
  runtime.copy_async(y.mutable_raw_data(), kGpu, buffer.host, Device::cpu(), 100, current_stream(kGpu));
  CHECK(cudasim::counters().host_waits == 0);
  const std::vector<std::uint8_t> bytes = y.to_vector<std::uint8_t>();
  CHECK(std::strcmp(reinterpret_cast<const char*>(bytes.data()), "told by the host") == 0);
  const std::int64_t frees = cudasim::counters().frees;
  buffer = {};
  CHECK(cudasim::counters().frees == frees + 1);
}

TEST_CASE("errors of CUDA name the call, the code and the place, and the next call works") {
  const Tensor source = Tensor::from_values(numbers(10), {10}, kGpu);
  cudasim::fail_nth("cudaMemcpyAsync", 1, cudaErrorInvalidValue);
  try {
    source.clone();
    FAIL("no error");
  } catch (const DeviceError& error) {
    const std::string text = error.what();
    INFO(text);
    for (const char* part : {"CUDA", "cudaMemcpyAsync", "cudaErrorInvalidValue", "cuda_runtime.cpp"}) {
      CHECK(text.find(part) != std::string::npos);
    }
  }
  cudasim::clear_failures();
  CHECK(source.clone().to_vector<float>() == numbers(10));
}

TEST_CASE("memory that the GPU does not have is an error that can be survived") {
  CachingAllocator& allocator = allocator_for(kGpu);
  allocator.release_cached();
  const AllocatorStats before = allocator.stats();
  CHECK_THROWS_AS(Tensor::empty({std::int64_t{1} << 50}, DType::f32, kGpu), OutOfMemory);
  // The first attempts fail, then the cache is freed and the last one works.
  cudasim::fail_nth("cudaMalloc", 1, cudaErrorMemoryAllocation);
  CHECK(Tensor::zeros({std::int64_t{8} << 20}, DType::f32, kGpu).defined());
  cudasim::fail_from_nth("cudaMalloc", 1, cudaErrorMemoryAllocation);
  CHECK_THROWS_WITH(Tensor::empty({std::int64_t{64} << 20}, DType::f32, kGpu),
                    Catch::Contains("out of memory on cuda:0: asked for 268435456 bytes"));
  cudasim::clear_failures();
  CHECK(allocator.stats().in_use_nbytes == before.in_use_nbytes);
  CHECK(Tensor::zeros({std::int64_t{64} << 20}, DType::f32, kGpu).defined());
  allocator.release_cached();
}

TEST_CASE(
    "a GPU for which the plugin has no kernels is refused with its capability and what the plugin was built for") {
  DeviceRuntime& runtime = runtime_for(Device::cuda(1));
  std::vector<Stream> made;
  std::string text;
  cudasim::fail_from_nth("cudaFuncGetAttributes", 1, cudaErrorNoKernelImageForDevice);
  try {
    // Those that were given back before need no look at the kernels.
    while (made.size() < 64) made.push_back(runtime.create_stream());
  } catch (const NotSupported& error) {
    text = error.what();
  }
  cudasim::clear_failures();
  INFO(text);
  for (const std::string& part : {std::string("cuda:1"), std::string("compute capability 9.0"),
                                  "built for " + cuda_plugin_info().built_for, std::string("-Dgpu_arch=90")}) {
    CHECK(text.find(part) != std::string::npos);
  }
  made.push_back(runtime.create_stream());
  for (const Stream stream : made) runtime.destroy_stream(stream);
}
