// The simulated cuDNN's descriptors, engines and plans: what is refused, what has no engine, what is offered in which
// order. Status codes are those that cuDNN 9.19 gave on a machine without a GPU.
#include <cstring>

#include "tests/cudasim/test/cudnn_test_support.h"

namespace {

using namespace cudnn_test;

const Dims kImage{4, 8, 6, 6};
const Dims kFilter{8, 8, 3, 3};
const ConvolutionSpec kSame{.pre_padding = 1, .post_padding = 1};

// Tensors of the shapes above.
TensorSpec image(std::int64_t id, cudnnDataType_t type = CUDNN_DATA_FLOAT) { return {id, kImage, type}; }
TensorSpec filter(std::int64_t id, cudnnDataType_t type = CUDNN_DATA_FLOAT) { return {id, kFilter, type}; }
TensorSpec between(std::int64_t id) { return {id, kImage, CUDNN_DATA_FLOAT, true}; }

std::size_t offers(const std::vector<Descriptor>& list, cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A) {
  return configurations(graph(list), mode).size();
}

Descriptor norm(std::int64_t channels, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
  const Dims dims{4, channels, 2, 2}, vector{1, channels, 1, 1};
  return Descriptor(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, tensor({1, dims, type}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, tensor({2, dims, type}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, tensor({3, vector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, tensor({4, vector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, tensor({5, vector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, tensor({6, vector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, tensor({.id = 7, .dims = {1, 1, 1, 1}, .by_value = true}))
      .finalize();
}

Descriptor norm_gradient(const TensorSpec& dy) {
  const Dims vector{1, 8, 1, 1};
  return Descriptor(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, tensor(image(31)))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, tensor(dy))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, tensor(image(32)))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, tensor({33, vector}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, tensor({34, vector}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, tensor({35, vector}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, tensor({36, vector}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, tensor({37, vector}))
      .finalize();
}

}  // namespace

TEST_CASE("cuDNN: attributes are checked when they are set and read") {
  const Cudnn cudnn;
  Descriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::int64_t one = 1;
  const Dims two{1, 2};
  const auto name = CUDNN_ATTR_TENSOR_UNIQUE_ID;
  CHECK(descriptor.try_set(name, CUDNN_TYPE_FLOAT, 1, &one) == CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  CHECK(descriptor.try_set(name, CUDNN_TYPE_INT64, 2, two.data()) == CUDNN_STATUS_BAD_PARAM);
  CHECK(descriptor.try_set(name, CUDNN_TYPE_INT64, 0, two.data()) == CUDNN_STATUS_BAD_PARAM);
  CHECK(descriptor.try_set(name, CUDNN_TYPE_INT64, 1, nullptr) == CUDNN_STATUS_BAD_PARAM);
  CHECK(descriptor.try_set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 1, &one) == CUDNN_STATUS_BAD_PARAM);
  char text[100];
  cudnnGetLastErrorString(text, sizeof text);
  CHECK(std::string(text).find("has no attribute") != std::string::npos);
  std::int64_t count = 0, values[8] = {};
  CHECK(cudnnBackendGetAttribute(descriptor.get(), name, CUDNN_TYPE_INT64, 1, &count, values) ==
        CUDNN_STATUS_NOT_INITIALIZED);

  Descriptor good = tensor(image(5));
  const auto dimensions = CUDNN_ATTR_TENSOR_DIMENSIONS;
  CHECK(good.try_set(name, CUDNN_TYPE_INT64, 1, &one) == CUDNN_STATUS_BAD_PARAM);
  CHECK(good.try_finalize() == CUDNN_STATUS_BAD_PARAM);
  CHECK(cudnnBackendGetAttribute(good.get(), dimensions, CUDNN_TYPE_INT64, 0, &count, nullptr) == CUDNN_STATUS_SUCCESS);
  CHECK(count == 4);
  CHECK(cudnnBackendGetAttribute(good.get(), dimensions, CUDNN_TYPE_INT64, 2, &count, values) == CUDNN_STATUS_SUCCESS);
  CHECK(count == 2);
  CHECK(values[1] == 8);
  CHECK(cudnnBackendGetAttribute(good.get(), dimensions, CUDNN_TYPE_FLOAT, 4, &count, values) ==
        CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  cudnnBackendDescriptor_t unknown = nullptr;
  CHECK(cudnnBackendCreateDescriptor(static_cast<cudnnBackendDescriptorType_t>(999), &unknown) ==
        CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
  CHECK(cudnnBackendFinalize(nullptr) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_CASE("cuDNN: tensors and windows are checked when they are finalized") {
  const Cudnn cudnn;
  struct Spec {
    Dims dims = kImage;
    Dims strides = channels_last(kImage);
    std::int64_t alignment = 16;
  };
  const auto status = [](const Spec& spec) {
    return Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, spec.dims)
        .set(CUDNN_ATTR_TENSOR_STRIDES, spec.strides)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, spec.alignment)
        .try_finalize();
  };
  CHECK(status({}) == CUDNN_STATUS_SUCCESS);
  CHECK(status({.strides = {288, 1, 48}}) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status({.strides = {288, -1, 48, 8}}) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status({.alignment = 0}) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status({.alignment = 3}) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status({.alignment = 2}) == CUDNN_STATUS_BAD_PARAM);
  CHECK(Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR).try_finalize() == CUDNN_STATUS_BAD_PARAM);
  CHECK(Descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR).try_finalize() == CUDNN_STATUS_BAD_PARAM);
  CHECK(Descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
            .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
            .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
            .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2})
            .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Dims{0, 1})
            .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Dims{1, 1})
            .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Dims{0, 0})
            .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Dims{0, 0})
            .try_finalize() == CUDNN_STATUS_BAD_PARAM);
}

TEST_CASE("cuDNN: an operation whose tensors do not fit, or are not final, is refused") {
  const Cudnn cudnn;
  const auto status = [](const Descriptor& x, const Descriptor& w, const Descriptor& y) {
    return Descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution(kSame))
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y)
        .try_finalize();
  };
  CHECK(status(tensor(image(1)), tensor(filter(2)), tensor(image(3))) == CUDNN_STATUS_SUCCESS);
  CHECK(status(tensor(image(1)), tensor(filter(2)), tensor({3, {4, 8, 5, 6}})) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status(tensor(image(1)), tensor({2, {8, 3, 3, 3}}), tensor(image(3))) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status(tensor(image(1)), tensor({2, {7, 8, 3, 3}}), tensor(image(3))) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status(Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR), tensor(filter(2)), tensor(image(3))) ==
        CUDNN_STATUS_BAD_PARAM);
  CHECK(status(convolution(kSame), tensor(filter(2)), tensor(image(3))) == CUDNN_STATUS_BAD_PARAM);
  CHECK(Descriptor(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR).try_finalize() == CUDNN_STATUS_BAD_PARAM);
}

TEST_CASE("cuDNN: an operation graph must be one") {
  const Cudnn cudnn;
  const auto status = [](const std::vector<Descriptor>& list) {
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const Descriptor& operation : list) handles.push_back(operation.get());
    Descriptor descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const cudnnStatus_t set = descriptor.try_set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                 static_cast<std::int64_t>(handles.size()), handles.data());
    return set != CUDNN_STATUS_SUCCESS ? set : descriptor.try_finalize();
  };
  const auto relu = [](const TensorSpec& x, const TensorSpec& y) {
    return pointwise(CUDNN_POINTWISE_RELU_FWD, x, {}, y);
  };
  CHECK(status({}) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status(operations(tensor(image(1)))) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status(operations(Descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR))) ==
        CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  CHECK(status(operations(relu(between(1), between(2)), relu(between(2), between(1)))) == CUDNN_STATUS_BAD_PARAM);
  CHECK(status(operations(relu(image(1), image(3)), relu(image(2), image(3)))) == CUDNN_STATUS_BAD_PARAM);
  // In any order, as long as there is one.
  CHECK(status(operations(relu(between(2), image(3)), relu(image(1), between(2)))) == CUDNN_STATUS_SUCCESS);
}

TEST_CASE("cuDNN: patterns that have no engine on sm_90 are offered none") {
  const Cudnn cudnn;
  const auto bf16 = CUDNN_DATA_BFLOAT16;
  CHECK(offers(operations(conv_backward_filter(kSame, image(1, bf16), filter(2, bf16), image(3, bf16)))) > 0);
  CHECK(offers(operations(conv_backward_filter(kSame, image(1, bf16), filter(2), image(3, bf16)))) == 0);
  CHECK(offers(operations(norm(4))) > 0);
  CHECK(offers(operations(norm(6))) == 0);
  CHECK(offers(operations(norm(8, bf16))) > 0);
  CHECK(offers(operations(norm(4, bf16))) == 0);
  CHECK(offers(operations(norm_gradient(image(1)))) > 0);
  CHECK(offers(operations(pointwise(CUDNN_POINTWISE_MUL, image(1), {2, kImage, CUDNN_DATA_BOOLEAN}, between(3)),
                          norm_gradient(between(3)))) > 0);
  CHECK(offers(operations(pointwise(CUDNN_POINTWISE_RELU_BWD, image(1), image(2), between(3)),
                          norm_gradient(between(3)))) == 0);
  CHECK(offers(operations(pointwise(CUDNN_POINTWISE_MUL, image(1), {2, {1, 8, 1, 1}}, between(3)),
                          conv_backward_filter(kSame, between(3), filter(4), image(5)))) == 0);
  // A value between operations that nobody makes; one id for two tensors; shapes that do not broadcast.
  CHECK(offers(operations(pointwise(CUDNN_POINTWISE_RELU_FWD, between(1), {}, image(2)))) == 0);
  CHECK(offers(operations(pointwise(CUDNN_POINTWISE_ADD, image(1), {1, {1, 8, 1, 1}}, image(2)))) == 0);
  CHECK(offers(operations(pointwise(CUDNN_POINTWISE_ADD, image(1), {3, {1, 4, 1, 1}}, image(2)))) == 0);
}

TEST_CASE("cuDNN: configurations come best first, with different workspaces, and one of them does not build") {
  const Cudnn cudnn;
  const Descriptor graph_descriptor = graph(operations(conv_backward_filter(kSame, image(1), filter(2), image(3))));
  auto found = configurations(graph_descriptor);
  REQUIRE(found.size() == 4);
  std::vector<std::int64_t> workspaces;
  int refused = 0;
  for (Descriptor& configuration : found) {
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    std::move(plan).set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    const cudnnStatus_t status = plan.try_finalize();
    if (status == CUDNN_STATUS_SUCCESS) {
      workspaces.push_back(get_integer(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
    } else {
      CHECK(status == CUDNN_STATUS_NOT_SUPPORTED);
      ++refused;
    }
  }
  CHECK(refused == 1);
  REQUIRE(workspaces.size() == 3);
  CHECK(workspaces[0] != workspaces[1]);
  CHECK(workspaces[1] != workspaces[2]);
  for (const std::int64_t workspace : workspaces) CHECK(workspace % 2 == 1);

  const auto fallback = configurations(graph_descriptor, CUDNN_HEUR_MODE_FALLBACK);
  REQUIRE(fallback.size() == 3);
  CHECK(numerical_notes(fallback[1]) == std::vector{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC});
}

TEST_CASE("cuDNN: a configuration can be made again from its engine's number and its knob") {
  const Cudnn cudnn;
  const Descriptor graph_descriptor = graph(operations(conv_forward(kSame, image(1), filter(2), image(3))));
  const auto found = configurations(graph_descriptor);
  const auto engines = get_descriptors(found.at(2), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  const auto knobs =
      get_descriptors(found.at(2), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  const std::int64_t index = get_integer(engines.at(0), CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  const std::int64_t choice = get_integer(knobs.at(0), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  const Descriptor engine = Descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR)
                                .set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph_descriptor)
                                .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, index)
                                .finalize();
  const Descriptor knob = Descriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
                              .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_KERNEL_CFG)
                              .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, choice)
                              .finalize();
  const Descriptor configuration = Descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
                                       .set(CUDNN_ATTR_ENGINECFG_ENGINE, engine)
                                       .set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knob)
                                       .finalize();
  CHECK(get_integer(plan_of(configuration), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) ==
        get_integer(plan_of(found.at(2)), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  CHECK(Descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR)
            .set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph_descriptor)
            .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::int64_t{999})
            .try_finalize() == CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_CASE("cuDNN: executing checks the pack, and overwrites the workspace") {
  const Cudnn cudnn;
  const NumberArray x(varied(1152, 1)), w(varied(576, 2)), y(1152), workspace(std::vector<double>(64, 3.0));
  const Descriptor plan =
      plan_of(configurations(graph(operations(conv_forward(kSame, image(1), filter(2), image(3))))).at(0));
  REQUIRE(get_integer(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) == 131);
  using Pointers = std::map<std::int64_t, void*>;
  const Pointers good{{1, x.data()}, {2, w.data()}, {3, y.data()}};
  CHECK(cudnn.execute(plan, Pointers{{1, x.data()}, {2, w.data()}}, workspace.data()) == CUDNN_STATUS_BAD_PARAM);
  CHECK(cudnn.execute(plan, Pointers{{1, nullptr}, {2, w.data()}, {3, y.data()}}, workspace.data()) ==
        CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  CHECK(cudnn.execute(plan, Pointers{{1, x.data<char>() + 4}, {2, w.data()}, {3, y.data()}}, workspace.data()) ==
        CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  CHECK(cudnn.execute(plan, good, nullptr) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  // The workspace ends behind its allocation.
  CHECK(cudnn.execute(plan, good, workspace.data<char>() + 128) == CUDNN_STATUS_EXECUTION_FAILED_CUDART);
  CHECK(cudnn.execute(plan, good, workspace.data()) == CUDNN_STATUS_SUCCESS);
  const auto left = workspace.download();
  CHECK(std::isnan(left[0]));
  CHECK(left[33] == 3);
  CHECK(cudnnBackendExecute(nullptr, plan.get(), plan.get()) == CUDNN_STATUS_NOT_INITIALIZED);
  CHECK(cudnnBackendExecute(cudnn.handle, plan.get(), plan.get()) == CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  cudasim::fail_nth_library_call("cudnnBackendExecute", 1, CUDNN_STATUS_EXECUTION_FAILED);
  CHECK(cudnn.execute(plan, good, workspace.data()) == CUDNN_STATUS_EXECUTION_FAILED);
}

TEST_CASE("cuDNN: a captured plan runs at each launch, with the values by value of the capture") {
  const Cudnn cudnn;
  const Dims one{1, 1, 1, 1};
  const NumberArray x(std::vector<double>{1});
  float step = 2;
  const Descriptor plan =
      plan_of(configurations(graph(operations(pointwise(CUDNN_POINTWISE_ADD, {1, one},
                                                        {.id = 2, .dims = one, .by_value = true}, {3, one}))),
                             CUDNN_HEUR_MODE_FALLBACK)
                  .at(0));
  require_ok(cudaDeviceSynchronize());
  require_ok(cudaStreamBeginCapture(cudnn.stream, cudaStreamCaptureModeThreadLocal));
  REQUIRE(cudnn.execute(plan, {{1, x.data()}, {2, &step}, {3, x.data()}}, nullptr) == CUDNN_STATUS_SUCCESS);
  cudaGraph_t recorded = nullptr;
  require_ok(cudaStreamEndCapture(cudnn.stream, &recorded));
  cudaGraphExec_t exec = nullptr;
  require_ok(cudaGraphInstantiate(&exec, recorded, 0));
  step = 100;
  for (int i = 0; i < 3; ++i) require_ok(cudaGraphLaunch(exec, cudnn.stream));
  CHECK(x.download()[0] == 7);
  CHECK(cudasim::graph_counts(exec).library_calls == 1);
  require_ok(cudaGraphExecDestroy(exec));
  require_ok(cudaGraphDestroy(recorded));
}

TEST_CASE("cuDNN: handles, versions and names") {
  cudasim::reset();
  cudnnHandle_t handle = nullptr;
  REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
  {
    const Descriptor left(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK(cudasim::leaks().size() == 2);
  }
  CHECK(cudasim::leaks().size() == 1);
  cudaStream_t stream = nullptr, got = nullptr;
  require_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudnnSetStream(handle, stream) == CUDNN_STATUS_SUCCESS);
  CHECK(cudnnGetStream(handle, &got) == CUDNN_STATUS_SUCCESS);
  CHECK(got == stream);
  require_ok(cudaStreamDestroy(stream));
  CHECK(cudnnGetVersion() == CUDNN_VERSION);
  CHECK(cudnnDestroy(handle) == CUDNN_STATUS_SUCCESS);
  CHECK(cudnnSetStream(handle, nullptr) == CUDNN_STATUS_NOT_INITIALIZED);
  CHECK(std::strcmp(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM), "CUDNN_STATUS_BAD_PARAM") == 0);
  cudasim::set_device_count(0);
  CHECK(cudnnCreate(&handle) == CUDNN_STATUS_NOT_INITIALIZED);
  cudasim::reset();
}
