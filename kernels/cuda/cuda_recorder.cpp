#include "kernels/cuda/cuda_recorder.h"

#include <vector>

#include "engine/core/error.h"
#include "engine/device/caching_allocator.h"
#include "kernels/cuda/cuda_runtime.h"
#include "kernels/launch/check.h"
#include "kernels/launch/current_device.h"
#include "kernels/launch/launch_log.h"

namespace heddle::cuda {
namespace {

thread_local int recordings = 0;

cudaStream_t handle_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Whatever happened, the stream records no more.
void stop_recording(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  cudaGetLastError();
}

// Calls what needs memory beside the tensors', once more without what the device's allocator has cached.
// Throws: OutOfMemory, DeviceError.
template <class Call>
void with_freed_memory(int device_index, const char* name, const GraphSize& size, Call&& call) {
  cudaError_t error = call();
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    allocator_for(Device::cuda(device_index)).release_cached();
    error = call();
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    MemoryInfo left;
    cudaMemGetInfo(&left.free_nbytes, &left.total_nbytes);
    cudaGetLastError();
    throw OutOfMemory(join_text("out of memory on ", Device::cuda(device_index), ": ", name,
                                " found none for a recorded step of ", size.kernels, " kernels, ", size.copies,
                                " copies and ", size.fills, " fills, though the cached memory was freed; ",
                                left.free_nbytes, " of ", left.total_nbytes, " bytes are free"),
                      0);
  }
  check(error, name);
}

class CudaExecutableGraph final : public ExecutableGraph {
 public:
  CudaExecutableGraph(int device_index, cudaGraphExec_t graph, const GraphSize& size)
      : device_index_(device_index), graph_(graph), size_(size) {}
  ~CudaExecutableGraph() override {
    if (cudaSetDevice(device_index_) != cudaSuccess) return;
    if (last_ != nullptr) {
      try {
        wait_watched(runtime_for(Device::cuda(device_index_)), last_);
      } catch (...) {
        // Of work that has failed, which whoever waits for the device is told; a communicator has ended its own.
      }
      cudaStreamSynchronize(last_);
    }
    cudaGraphExecDestroy(graph_);
  }
  void launch(Stream stream) override {
    use_device(device_index_);
    note_launch("recorded step", {});
    // The first launch gives the graph its memory on the device.
    with_freed_memory(device_index_, "cudaGraphLaunch", size_,
                      [&] { return cudaGraphLaunch(graph_, handle_of(stream)); });
    last_ = handle_of(stream);
  }
  GraphSize size() const noexcept override { return size_; }

 private:
  int device_index_;
  cudaGraphExec_t graph_;
  GraphSize size_;
  cudaStream_t last_ = nullptr;  // where it was launched
};

GraphSize size_of(cudaGraph_t graph) {
  std::size_t count = 0;
  HEDDLE_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  HEDDLE_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  GraphSize size;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    HEDDLE_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    ++(type == cudaGraphNodeTypeKernel   ? size.kernels
       : type == cudaGraphNodeTypeMemcpy ? size.copies
       : type == cudaGraphNodeTypeMemset ? size.fills
                                         : size.others);
  }
  return size;
}

}  // namespace

bool is_recording() noexcept { return recordings > 0; }

AllowInRecording::AllowInRecording() noexcept : previous_(cudaStreamCaptureModeRelaxed) {
  cudaThreadExchangeStreamCaptureMode(&previous_);
}
AllowInRecording::~AllowInRecording() { cudaThreadExchangeStreamCaptureMode(&previous_); }

void CudaRecorder::begin(Stream stream) {
  use_device(device_index_);
  // Thread-local: what other threads do meanwhile on streams of their own is their matter.
  HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeThreadLocal));
  ++recordings;
}

std::shared_ptr<ExecutableGraph> CudaRecorder::end(Stream stream) {
  use_device(device_index_);
  --recordings;
  struct Graph {
    ~Graph() {
      if (graph != nullptr) cudaGraphDestroy(graph);
    }
    cudaGraph_t graph = nullptr;
  } recorded;
  if (const cudaError_t error = cudaStreamEndCapture(handle_of(stream), &recorded.graph); error != cudaSuccess) {
    stop_recording(handle_of(stream));
    check(error, "cudaStreamEndCapture");
  }
  const GraphSize size = size_of(recorded.graph);
  cudaGraphExec_t executable = nullptr;
  with_freed_memory(device_index_, "cudaGraphInstantiate", size,
                    [&] { return cudaGraphInstantiate(&executable, recorded.graph, 0); });
  try {
    return std::make_shared<CudaExecutableGraph>(device_index_, executable, size);
  } catch (...) {
    cudaGraphExecDestroy(executable);
    throw;
  }
}

void CudaRecorder::abandon(Stream stream) noexcept {
  --recordings;
  stop_recording(handle_of(stream));
}

}  // namespace heddle::cuda
