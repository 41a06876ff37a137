// Stream capture and graphs: what is recorded, how it is replayed, and which calls a capture forbids.
#include <thread>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/device_array.h"
#include "tests/cudasim/test/kernels.h"
#include "tests/support/catch.h"

namespace cudasim::test {
namespace {

constexpr int kCount = 64;

// A capture in a stream of its own.
class CaptureTest {
 public:
  explicit CaptureTest(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal)
      : x(std::vector<float>(kCount, 0.0f)), y(std::vector<float>(kCount, 0.0f)) {
    require_ok(cudaStreamBeginCapture(stream, mode));
  }
  ~CaptureTest() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  void add(cudaStream_t where, const DeviceArray<float>& to, float value = 1.0f) const {
    require_ok(start(add_value, 1, kCount, where, to.data(), value, kCount));
  }
  void finish() {
    require_ok(cudaStreamEndCapture(stream, &graph));
    require_ok(cudaGraphInstantiate(&exec, graph, 0));
  }
  // Ends a capture that has failed.
  cudaError_t end() {
    const cudaError_t error = cudaStreamEndCapture(stream, &graph);
    CHECK(graph == nullptr);
    return error;
  }

  FreshMachine fresh;
  DeviceArray<float> x, y;
  NonBlockingStream stream, other;
  EventHandle forked, joined;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
};

}  // namespace

TEST_CASE("a captured stream runs nothing, its graph runs it at each launch") {
  CaptureTest test;
  test.add(test.stream, test.x);
  require_ok(cudaMemcpyAsync(test.y.data(), test.x.data(), test.x.nbytes(), cudaMemcpyDeviceToDevice, test.stream));
  require_ok(cudaMemsetAsync(test.x.data() + 1, 0, 4, test.stream));
  CHECK(counters().kernels == 0);
  test.finish();
  CHECK(test.x.values()[0] == 0.0f);
  for (int i = 0; i < 3; ++i) require_ok(cudaGraphLaunch(test.exec, test.stream));
  require_ok(cudaStreamSynchronize(test.stream));
  CHECK(test.y.values()[0] == 3.0f);
  CHECK(test.y.values()[1] == 1.0f);
  CHECK(test.x.values()[1] == 0.0f);
  CHECK(counters().kernels == 3);
  CHECK(counters().graph_launches == 3);
  CHECK(graph_counts(test.exec).nodes == 3);
  CHECK(graph_counts(test.exec).kernels == 1);
  CHECK(graph_counts(test.exec).copies == 1);
  CHECK(graph_counts(test.exec).fills == 1);
  CHECK(last_launched_graph().nodes == 3);
}

TEST_CASE("a capture follows events into other streams and back") {
  CaptureTest test;
  const StreamOrder order = GENERATE(StreamOrder{StreamOrder::lazy}, StreamOrder{StreamOrder::eager},
                                     StreamOrder{StreamOrder::random, 1}, StreamOrder{StreamOrder::random, 2});
  set_stream_order(order);
  test.add(test.stream, test.x, 1.0f);
  require_ok(cudaEventRecord(test.forked, test.stream));
  require_ok(cudaStreamWaitEvent(test.other, test.forked, 0));
  require_ok(start(copy_values, 1, kCount, test.other, test.x.data(), test.y.data(), kCount));
  require_ok(cudaEventRecord(test.joined, test.other));
  require_ok(cudaStreamWaitEvent(test.stream, test.joined, 0));
  test.add(test.stream, test.y, 10.0f);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  require_ok(cudaStreamIsCapturing(test.other, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  test.finish();
  require_ok(cudaStreamIsCapturing(test.other, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  require_ok(cudaGraphLaunch(test.exec, test.stream));
  require_ok(cudaGraphLaunch(test.exec, test.stream));
  require_ok(cudaStreamSynchronize(test.stream));
  CHECK(test.y.values()[5] == 12.0f);
}

TEST_CASE("a captured launch keeps its declared accesses") {
  CaptureTest test;
  reset_counters();
  declare_next_launch({{test.x.data(), test.x.nbytes(), false}, {test.x.data(), test.x.nbytes(), true}});
  test.add(test.stream, test.x);
  declare_next_launch({{test.y.data(), 4, false}, {test.y.data(), 4, true}});
  require_ok(start(add_value, 1, 1, test.stream, test.y.data(), 1.0f, 1));
  test.finish();
  require_ok(cudaGraphLaunch(test.exec, test.stream));
  require_ok(cudaStreamSynchronize(test.stream));
  CHECK(counters().bytes_written == kCount * 4 + 4);
}

TEST_CASE("work that is not joined cannot be ended") {
  CaptureTest test;
  require_ok(cudaEventRecord(test.forked, test.stream));
  require_ok(cudaStreamWaitEvent(test.other, test.forked, 0));
  test.add(test.other, test.x);
  CHECK(test.end() == cudaErrorStreamCaptureUnjoined);
}

TEST_CASE("calls that a global capture forbids fail and spoil it") {
  CaptureTest test;
  test.add(test.stream, test.x);
  void* data = nullptr;
  const EventHandle outside;
  const int which = GENERATE(range(0, 11));
  CAPTURE(which);
  cudaError_t expected = cudaErrorStreamCaptureUnsupported;
  cudaError_t error = cudaSuccess;
  float host = 0.0f;
  switch (which) {
    case 0: error = cudaMalloc(&data, 4); break;
    case 1: error = cudaStreamSynchronize(test.stream); break;
    case 2: error = cudaStreamQuery(test.stream); break;
    case 3: error = cudaDeviceSynchronize(); break;
    case 4: error = cudaEventQuery(outside); break;
    case 5: error = cudaMemcpyAsync(&host, test.x.data(), 4, cudaMemcpyDeviceToHost, test.stream); break;
    case 6: error = cudaMallocHost(&data, 4); break;
    case 7: error = cudaFree(test.y.data()); break;
    case 8:
      require_ok(cudaEventRecord(test.forked, test.stream));
      error = cudaEventSynchronize(test.forked);
      expected = cudaErrorCapturedEvent;
      break;
    case 9:
      require_ok(cudaEventRecord(outside, test.other));
      error = cudaStreamWaitEvent(test.stream, outside, 0);
      expected = cudaErrorStreamCaptureIsolation;
      break;
    default: error = cudaStreamSynchronize(test.other); break;
  }
  CHECK(error == expected);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  require_ok(cudaStreamIsCapturing(test.stream, &status));
  CHECK(status == cudaStreamCaptureStatusInvalidated);
  CHECK(start(add_value, 1, 1, test.stream, test.x.data(), 1.0f, 1) == cudaErrorStreamCaptureInvalidated);
  CHECK(test.end() == cudaErrorStreamCaptureInvalidated);
  // The stream is as before.
  test.add(test.stream, test.x);
  require_ok(cudaStreamSynchronize(test.stream));
  CHECK(test.x.values()[0] == 1.0f);
}

TEST_CASE("a relaxed capture, or a thread that exchanged its mode, may allocate") {
  SECTION("relaxed") {
    CaptureTest test(cudaStreamCaptureModeRelaxed);
    const DeviceArray<float> z(4);
    test.add(test.stream, test.x);
    test.finish();
  }
  SECTION("exchanged") {
    CaptureTest test;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    require_ok(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == cudaStreamCaptureModeGlobal);
    const DeviceArray<float> z(4);
    require_ok(cudaThreadExchangeStreamCaptureMode(&mode));
    test.add(test.stream, test.x);
    test.finish();
  }
}

TEST_CASE("a thread-local capture forbids allocations to its own thread alone, a global one to all") {
  const cudaStreamCaptureMode mode = GENERATE(cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal);
  CaptureTest test(mode);
  cudaError_t error = cudaSuccess;
  std::thread([&] {
    void* data = nullptr;
    error = cudaMalloc(&data, 4);
    if (error == cudaSuccess) cudaFree(data);
  }).join();
  if (mode == cudaStreamCaptureModeGlobal) {
    CHECK(error == cudaErrorStreamCaptureUnsupported);
    CHECK(test.end() == cudaErrorStreamCaptureInvalidated);
  } else {
    CHECK(error == cudaSuccess);
    test.add(test.stream, test.x);
    test.finish();
  }
}

TEST_CASE("the legacy stream must not meet a blocking stream that is captured") {
  const FreshMachine fresh;
  const DeviceArray<float> x(std::vector<float>(kCount, 0.0f));
  cudaStream_t blocking = nullptr;
  require_ok(cudaStreamCreate(&blocking));
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  require_ok(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal));
  CHECK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal) == cudaErrorIllegalState);
  CHECK(start(add_value, 1, kCount, nullptr, x.data(), 1.0f, kCount) == cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorIllegalState);
  require_ok(cudaStreamDestroy(blocking));
}

TEST_CASE("a capture ends in the stream and the thread in which it began") {
  CaptureTest test;
  SECTION("another thread") {
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      cudaGraph_t graph = nullptr;
      error = cudaStreamEndCapture(test.stream, &graph);
    }).join();
    CHECK(error == cudaErrorStreamCaptureWrongThread);
    test.finish();
  }
  SECTION("another stream") {
    require_ok(cudaEventRecord(test.forked, test.stream));
    require_ok(cudaStreamWaitEvent(test.other, test.forked, 0));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(test.other, &graph) == cudaErrorStreamCaptureUnmatched);
    CHECK(test.end() == cudaErrorStreamCaptureInvalidated);
  }
}

TEST_CASE("two captures must not be merged") {
  CaptureTest test;
  require_ok(cudaStreamBeginCapture(test.other, cudaStreamCaptureModeGlobal));
  require_ok(cudaEventRecord(test.forked, test.stream));
  CHECK(cudaStreamWaitEvent(test.other, test.forked, 0) == cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(test.other, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(test.end() == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("an executable graph takes over new arguments, but no new shape") {
  CaptureTest test;
  test.add(test.stream, test.x, 1.0f);
  test.finish();
  const auto update = [&](int kernels, float value) {
    require_ok(cudaStreamBeginCapture(test.stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < kernels; ++i) test.add(test.stream, test.x, value);
    cudaGraph_t graph = nullptr;
    require_ok(cudaStreamEndCapture(test.stream, &graph));
    cudaGraphExecUpdateResultInfo info = {};
    const cudaError_t error = cudaGraphExecUpdate(test.exec, graph, &info);
    CHECK((error == cudaSuccess) == (info.result == cudaGraphExecUpdateSuccess));
    require_ok(cudaGraphDestroy(graph));
    return info.result;
  };
  CHECK(update(1, 5.0f) == cudaGraphExecUpdateSuccess);
  require_ok(cudaGraphLaunch(test.exec, test.stream));
  CHECK(update(2, 5.0f) == cudaGraphExecUpdateErrorTopologyChanged);
  require_ok(cudaStreamSynchronize(test.stream));
  CHECK(test.x.values()[0] == 5.0f);
}

TEST_CASE("the nodes of a graph can be listed") {
  CaptureTest test;
  test.add(test.stream, test.x);
  require_ok(cudaMemsetAsync(test.x.data(), 0, 4, test.stream));
  test.finish();
  std::size_t count = 0;
  require_ok(cudaGraphGetNodes(test.graph, nullptr, &count));
  REQUIRE(count == 2);
  cudaGraphNode_t nodes[3] = {};
  count = 3;
  require_ok(cudaGraphGetNodes(test.graph, nodes, &count));
  CHECK(count == 2);
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  require_ok(cudaGraphNodeGetType(nodes[0], &type));
  CHECK(type == cudaGraphNodeTypeKernel);
  require_ok(cudaGraphNodeGetType(nodes[1], &type));
  CHECK(type == cudaGraphNodeTypeMemset);
}

TEST_CASE("graphs that are not destroyed are leaks") {
  const FreshMachine fresh;
  {
    CaptureTest test;
    test.add(test.stream, test.x);
    test.finish();
    int graphs = 0;
    for (const Leak& leak : leaks()) graphs += leak.kind == "graph" || leak.kind == "graph exec" ? 1 : 0;
    CHECK(graphs == 2);
  }
  CHECK(leaks().empty());
}

}  // namespace cudasim::test
