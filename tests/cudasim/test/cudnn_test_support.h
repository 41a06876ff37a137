// Builders for the tests of the simulated cuDNN: descriptors with their attributes in one line, graphs, plans.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/number_array.h"
#include "tests/support/catch.h"

namespace cudnn_test {

using Dims = std::vector<std::int64_t>;

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    REQUIRE(cudnnBackendCreateDescriptor(type, &handle_) == CUDNN_STATUS_SUCCESS);
  }
  ~Descriptor() {
    if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  cudnnBackendDescriptor_t get() const { return handle_; }

  cudnnStatus_t try_set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                        const void* values) {
    return cudnnBackendSetAttribute(handle_, name, type, count, values);
  }
  template <class T>
  Descriptor&& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) && {
    REQUIRE(try_set(name, type, 1, &value) == CUDNN_STATUS_SUCCESS);
    return std::move(*this);
  }
  Descriptor&& set(cudnnBackendAttributeName_t name, const Dims& values) && {
    REQUIRE(try_set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data()) ==
            CUDNN_STATUS_SUCCESS);
    return std::move(*this);
  }
  Descriptor&& set(cudnnBackendAttributeName_t name, const Descriptor& child) && {
    const cudnnBackendDescriptor_t handle = child.get();
    REQUIRE(try_set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle) == CUDNN_STATUS_SUCCESS);
    return std::move(*this);
  }
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(handle_); }
  Descriptor&& finalize() && {
    REQUIRE(try_finalize() == CUDNN_STATUS_SUCCESS);
    return std::move(*this);
  }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// A tensor with channels last; by_value: a number on the host.
struct TensorSpec {
  std::int64_t id = 0;
  Dims dims;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_virtual = false;
  bool by_value = false;
  std::int64_t alignment = 16;
};
inline Dims channels_last(const Dims& dims) {
  if (dims.size() != 4) {
    Dims strides(dims.size(), 1);
    for (std::size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
    return strides;
  }
  return {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
}
inline Descriptor tensor(const TensorSpec& spec) {
  return Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, spec.type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, spec.dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, channels_last(spec.dims))
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, spec.id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, spec.alignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, spec.is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, spec.by_value)
      .finalize();
}

struct ConvolutionSpec {
  std::int64_t stride = 1, pre_padding = 0, post_padding = 0, dilation = 1;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  double alpha = 1, beta = 0;
};
inline Descriptor convolution(const ConvolutionSpec& spec) {
  return Descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, spec.mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Dims{spec.stride, spec.stride})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Dims{spec.dilation, spec.dilation})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Dims{spec.pre_padding, spec.pre_padding})
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Dims{spec.post_padding, spec.post_padding})
      .finalize();
}
inline Descriptor conv_forward(const ConvolutionSpec& spec, const TensorSpec& x, const TensorSpec& w,
                               const TensorSpec& y) {
  return Descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution(spec))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor(x))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(w))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, tensor(y))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_DOUBLE, spec.alpha)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_DOUBLE, spec.beta)
      .finalize();
}
inline Descriptor conv_backward_data(const ConvolutionSpec& spec, const TensorSpec& dx, const TensorSpec& w,
                                     const TensorSpec& dy) {
  return Descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, convolution(spec))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, tensor(dx))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, tensor(w))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, tensor(dy))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_DOUBLE, spec.alpha)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_DOUBLE, spec.beta)
      .finalize();
}
inline Descriptor conv_backward_filter(const ConvolutionSpec& spec, const TensorSpec& x, const TensorSpec& dw,
                                       const TensorSpec& dy) {
  return Descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, convolution(spec))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, tensor(x))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, tensor(dw))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, tensor(dy))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_DOUBLE, spec.alpha)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_DOUBLE, spec.beta)
      .finalize();
}

// y = mode(x, b); without b if its id is 0.
inline Descriptor pointwise(cudnnPointwiseMode_t mode, const TensorSpec& x, const TensorSpec& b, const TensorSpec& y) {
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  const Descriptor function = Descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                                  .set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
                                  .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
                                  .finalize();
  const bool gradient = mode == CUDNN_POINTWISE_RELU_BWD;
  if (b.id != 0) {
    std::move(operation).set(gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                             tensor(b));
  }
  return std::move(operation)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(x))
      .set(gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(y))
      .finalize();
}

inline Descriptor graph(const std::vector<Descriptor>& operations) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& operation : operations) handles.push_back(operation.get());
  Descriptor result(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  REQUIRE(result.try_set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                         static_cast<std::int64_t>(handles.size()), handles.data()) == CUDNN_STATUS_SUCCESS);
  return std::move(result).finalize();
}
template <class... Operations>
std::vector<Descriptor> operations(Operations&&... made) {
  std::vector<Descriptor> list;
  (list.push_back(std::move(made)), ...);
  return list;
}

// Descriptors that an attribute of another holds.
inline std::vector<Descriptor> get_descriptors(const Descriptor& from, cudnnBackendAttributeName_t name,
                                               cudnnBackendDescriptorType_t type) {
  std::int64_t count = 0;
  REQUIRE(cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr) ==
          CUDNN_STATUS_SUCCESS);
  std::vector<Descriptor> list;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i) handles.push_back(list.emplace_back(type).get());
  REQUIRE(cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, handles.data()) ==
          CUDNN_STATUS_SUCCESS);
  return list;
}
inline std::vector<Descriptor> configurations(const Descriptor& graph_descriptor,
                                              cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A) {
  const Descriptor heuristics = Descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
                                    .set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_descriptor)
                                    .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode)
                                    .finalize();
  return get_descriptors(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}
inline std::int64_t get_integer(const Descriptor& from, cudnnBackendAttributeName_t name) {
  std::int64_t value = -1, count = 0;
  REQUIRE(cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_INT64, 1, &count, &value) == CUDNN_STATUS_SUCCESS);
  return value;
}
inline std::vector<cudnnBackendNumericalNote_t> numerical_notes(const Descriptor& configuration) {
  const auto engines = get_descriptors(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  std::int64_t count = 0;
  REQUIRE(cudnnBackendGetAttribute(engines.at(0).get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()) == CUDNN_STATUS_SUCCESS);
  notes.resize(static_cast<std::size_t>(count));
  return notes;
}
inline Descriptor plan_of(const Descriptor& configuration) {
  return Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
      .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration)
      .finalize();
}

// A handle on a fresh machine.
class Cudnn {
 public:
  Cudnn() {
    cudasim::reset();
    REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
    require_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    REQUIRE(cudnnSetStream(handle, stream) == CUDNN_STATUS_SUCCESS);
  }
  ~Cudnn() {
    cudnnDestroy(handle);
    cudaStreamDestroy(stream);
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  cudnnStatus_t execute(const Descriptor& plan, const std::map<std::int64_t, void*>& tensors, void* workspace) const {
    Dims ids;
    std::vector<void*> pointers;
    for (const auto& [id, pointer] : tensors) {
      ids.push_back(id);
      pointers.push_back(pointer);
    }
    Descriptor pack = Descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
                          .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
                          .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    REQUIRE(pack.try_set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                         static_cast<std::int64_t>(pointers.size()), pointers.data()) == CUDNN_STATUS_SUCCESS);
    REQUIRE(pack.try_finalize() == CUDNN_STATUS_SUCCESS);
    return cudnnBackendExecute(handle, plan.get(), pack.get());
  }
  // Runs a graph by the configuration that rounds nothing: engine 1 of products, else the first.
  void run(const std::vector<Descriptor>& operation_list, const std::map<std::int64_t, void*>& tensors) const {
    const Descriptor graph_descriptor = graph(operation_list);
    const auto found = configurations(graph_descriptor, CUDNN_HEUR_MODE_FALLBACK);
    REQUIRE_FALSE(found.empty());
    const Descriptor plan = plan_of(found.at(0));
    const NumberArray workspace(get_integer(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) / 4 + 1);
    cudasim::reset_counters();
    REQUIRE(execute(plan, tensors, workspace.data()) == CUDNN_STATUS_SUCCESS);
    CHECK(cudasim::counters().library_calls == 1);
    require_ok(cudaDeviceSynchronize());
  }

  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
};

}  // namespace cudnn_test
