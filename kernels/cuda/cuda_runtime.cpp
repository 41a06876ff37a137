#include "kernels/cuda/cuda_runtime.h"

#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "kernels/cuda/cuda_recorder.h"
#include "kernels/cuda/event_pool.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/stopwatch.h"
#include "kernels/launch/check.h"
#include "kernels/launch/current_device.h"
#include "kernels/launch/launch_log.h"
#include "kernels/launch/probe.h"
#include "kernels/launch/profile.h"

namespace heddle::cuda {
namespace {

cudaStream_t handle_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// "13.0" of 13000
std::string version_text(int number) { return join_text(number / 1000, ".", number % 1000 / 10); }

void refuse_in_recording(const char* what) {
  if (is_recording()) throw DeviceError(join_text(what, " inside a recorded step: it cannot be part of a recording"));
}

// Multiply-adds that a multiprocessor starts in a cycle, in f32 and in bf16 on tensor cores with sums in f32; 0 where
// NVIDIA's pages give no number for the whole generation. Source: CUDA C++ Programming Guide, throughput of native
// arithmetic instructions; whitepapers of A100 and H100.
struct MultiplyAdds {
  int major, minor;
  double f32, bf16;
};
constexpr MultiplyAdds kMultiplyAdds[] = {{7, 5, 64, 0},     {8, 0, 64, 1024}, {8, 6, 128, 0}, {8, 9, 128, 0},
                                          {9, 0, 128, 2048}, {10, 0, 128, 0},  {12, 0, 128, 0}};

void add_limits(int index, const cudaDeviceProp& from, DeviceProperties& properties) {
  int clock_khz = 0, memory_khz = 0, bus_bits = 0;
  HEDDLE_CUDA_CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, index));
  HEDDLE_CUDA_CHECK(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, index));
  HEDDLE_CUDA_CHECK(cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, index));
  // Twice a cycle.
  properties.bytes_per_second = 2.0 * memory_khz * 1e3 * bus_bits / 8;
  properties.cache_nbytes = static_cast<std::size_t>(from.l2CacheSize);
  for (const MultiplyAdds& row : kMultiplyAdds) {
    if (row.major != from.major || row.minor != from.minor) continue;
    const double cycles = 2.0 * clock_khz * 1e3 * from.multiProcessorCount;
    properties.f32_flops_per_second = cycles * row.f32;
    properties.bf16_flops_per_second = cycles * row.bf16;
  }
}

}  // namespace

namespace {

// query: says cudaErrorNotReady, for a stream or an event.
template <class Query>
void poll_watched(DeviceRuntime& runtime, const char* call, const Query& query) {
  if (!runtime.is_watched()) return;
  // Short waits look often; a long one leaves the core.
  constexpr int kBusyLooks = 200;
  constexpr std::chrono::microseconds kPause{50};
  const auto begin = std::chrono::steady_clock::now();
  for (int looks = 0;; ++looks) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return check(error, call);
    cudaGetLastError();
    runtime.waiting(std::chrono::steady_clock::now() - begin);
    if (looks < kBusyLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace

void wait_watched(DeviceRuntime& runtime, cudaStream_t stream) {
  poll_watched(runtime, "cudaStreamQuery", [stream] { return cudaStreamQuery(stream); });
}

void wait_watched(DeviceRuntime& runtime, cudaEvent_t event) {
  poll_watched(runtime, "cudaEventQuery", [event] { return cudaEventQuery(event); });
}

bool is_page_locked(const void* host) {
  cudaPointerAttributes attributes{};
  HEDDLE_CUDA_CHECK(cudaPointerGetAttributes(&attributes, host));
  return attributes.type == cudaMemoryTypeHost;
}

CudaRuntime::CudaRuntime(int index, std::string built_for)
    : device_(Device::cuda(index)),
      built_for_(std::move(built_for)),
      events_(std::make_shared<EventPool>()),
      staging_(std::make_unique<StagingBuffers>()),
      recorder_(std::make_unique<CudaRecorder>(index)) {
  HEDDLE_CUDA_CHECK(cudaGetDeviceProperties(&properties_, index));
  // The name is the only thing by which the simulated CUDA of the tests differs for a program.
  simulated_ = std::string_view(properties_.name).starts_with("Simulated CUDA");
}

CudaRuntime::~CudaRuntime() {
  if (default_stream_.handle != nullptr) spare_streams_.push_back(default_stream_);
  if (spare_streams_.empty() || cudaSetDevice(device_.index) != cudaSuccess) return;
  for (const Stream stream : spare_streams_) cudaStreamDestroy(handle_of(stream));
}

void CudaRuntime::use() const { use_device(device_.index); }

std::string CudaRuntime::description() const { return properties_.name; }

DeviceProperties CudaRuntime::properties() const {
  DeviceProperties properties{.name = properties_.name,
                              .capability = join_text(properties_.major, ".", properties_.minor),
                              .memory_nbytes = properties_.totalGlobalMem,
                              .multiprocessors = properties_.multiProcessorCount};
  add_limits(device_.index, properties_, properties);
  int driver = 0, runtime = 0;
  HEDDLE_CUDA_CHECK(cudaDriverGetVersion(&driver));
  HEDDLE_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  properties.versions = {{"driver for CUDA", version_text(driver)}, {"CUDA runtime", version_text(runtime)}};
  return properties;
}

// ---- memory ----

void* CudaRuntime::allocate(std::size_t nbytes) {
  use();
  const AllowInRecording allow;
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, nbytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(error, "cudaMalloc");
  return data;
}

void CudaRuntime::deallocate(void* data, std::size_t) noexcept {
  // An error here is of work that was queued before, and whoever waits for that is told; or the program ends.
  const AllowInRecording allow;
  if (cudaSetDevice(device_.index) == cudaSuccess) cudaFree(data);
}

MemoryInfo CudaRuntime::memory_info() const {
  use();
  MemoryInfo info;
  HEDDLE_CUDA_CHECK(cudaMemGetInfo(&info.free_nbytes, &info.total_nbytes));
  return info;
}

HostBuffer CudaRuntime::allocate_host(std::size_t nbytes) {
  use();
  const AllowInRecording allow;
  void* host = nullptr;
  const cudaError_t error = cudaHostAlloc(&host, nbytes == 0 ? 1 : nbytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory(join_text("out of page-locked host memory for ", device_, ": asked for ", nbytes,
                                " bytes; ulimit -l may limit it"),
                      nbytes);
  }
  check(error, "cudaHostAlloc");
  HostBuffer buffer{
      .owner = std::shared_ptr<void>(host, [](void* p) { cudaFreeHost(p); }), .host = host, .nbytes = nbytes};
  HEDDLE_CUDA_CHECK(cudaHostGetDevicePointer(&buffer.device, host, 0));
  std::memset(host, 0, nbytes);
  return buffer;
}

// ---- copies ----

void CudaRuntime::copy_async(void* destination, Device destination_device, const void* source, Device source_device,
                             std::size_t nbytes, Stream stream) {
  if (nbytes == 0) return;
  use();
  if (destination_device.is_cpu()) {
    // Into ordinary memory CUDA copies before it returns.
    const bool waits = !is_page_locked(destination);
    if (waits) {
      refuse_in_recording("a copy to ordinary host memory");
      wait_watched(*this, handle_of(stream));
    }
    HEDDLE_CUDA_CHECK(cudaMemcpyAsync(destination, source, nbytes, cudaMemcpyDeviceToHost, handle_of(stream)));
  } else if (source_device.is_cpu()) {
    if (is_page_locked(source)) {
      HEDDLE_CUDA_CHECK(cudaMemcpyAsync(destination, source, nbytes, cudaMemcpyHostToDevice, handle_of(stream)));
    } else {
      refuse_in_recording("a copy from ordinary host memory");
      staging_->copy(destination, source, nbytes, handle_of(stream), *this);
    }
  } else if (destination_device == source_device) {
    HEDDLE_CUDA_CHECK(cudaMemcpyAsync(destination, source, nbytes, cudaMemcpyDeviceToDevice, handle_of(stream)));
  } else {
    HEDDLE_CUDA_CHECK(cudaMemcpyPeerAsync(destination, destination_device.index, source, source_device.index, nbytes,
                                          handle_of(stream)));
  }
}

void CudaRuntime::fill_async(void* destination, unsigned char value, std::size_t nbytes, Stream stream) {
  if (nbytes == 0) return;
  use();
  HEDDLE_CUDA_CHECK(cudaMemsetAsync(destination, value, nbytes, handle_of(stream)));
}

// ---- streams and events ----

void CudaRuntime::check_kernels() const {
  const cudaError_t error = find_kernel_image();
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion) {
    cudaGetLastError();
    throw NotSupported(join_text(device_, " (", properties_.name, ") has compute capability ", properties_.major, ".",
                                 properties_.minor,
                                 ", for which this build of Heddle has no kernels: it was built for ", built_for_,
                                 "; configure it with -Dgpu_arch=", properties_.major, properties_.minor));
  }
  check(error, "cudaFuncGetAttributes");
}

Stream CudaRuntime::make_stream() {
  cudaStream_t stream = nullptr;
  spare_streams_.reserve(++made_streams_);  // so that destroy_stream() needs no memory
  HEDDLE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return {device_, stream};
}

Stream CudaRuntime::default_stream() {
  const std::lock_guard lock(mutex_);
  if (default_stream_.handle == nullptr) {
    use();
    check_kernels();
    default_stream_ = make_stream();
  }
  return default_stream_;
}

Stream CudaRuntime::create_stream() {
  use();
  const std::lock_guard lock(mutex_);
  if (spare_streams_.empty()) {
    check_kernels();
    return make_stream();
  }
  const Stream stream = spare_streams_.back();
  spare_streams_.pop_back();
  return stream;
}

void CudaRuntime::destroy_stream(Stream stream) noexcept {
  // Kept for the next create_stream(), so that what was ordered by it stays ordered: memory of the caching allocator.
  const std::lock_guard lock(mutex_);
  spare_streams_.push_back(stream);
}

Event CudaRuntime::record(Stream stream) {
  use();
  Event event{events_->take()};
  HEDDLE_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(event.handle.get()), handle_of(stream)));
  return event;
}

void CudaRuntime::wait(Stream stream, const Event& event) {
  if (event.handle == nullptr) return;
  use();
  HEDDLE_CUDA_CHECK(cudaStreamWaitEvent(handle_of(stream), static_cast<cudaEvent_t>(event.handle.get()), 0));
}

bool CudaRuntime::is_done(Stream stream) {
  refuse_in_recording("a question whether the device is done");
  use();
  const cudaError_t error = cudaStreamQuery(handle_of(stream));
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(error, "cudaStreamQuery");
  return true;
}

void CudaRuntime::synchronize(Stream stream) {
  refuse_in_recording("a wait for the device");
  use();
  wait_watched(*this, handle_of(stream));
  HEDDLE_CUDA_CHECK(cudaStreamSynchronize(handle_of(stream)));
  forget_launches();
}

void CudaRuntime::prepare_launch(const char* name) {
  use();
  note_launch(name, {});
}

WorkCounts CudaRuntime::work_counts() const noexcept {
  const LaunchTotals totals = launch_totals();
  return {.launches = totals.launches, .read_nbytes = totals.read_nbytes, .written_nbytes = totals.written_nbytes};
}

std::unique_ptr<Stopwatch> CudaRuntime::make_stopwatch() {
  use();
  return std::make_unique<CudaStopwatch>();
}

StreamRecorder* CudaRuntime::recorder() noexcept { return recorder_.get(); }

void CudaRuntime::begin_range(const char* name) noexcept { profile::begin(name); }

void CudaRuntime::end_range() noexcept { profile::end(); }

}  // namespace heddle::cuda
