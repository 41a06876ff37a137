// The descriptors of the simulated cuDNN's graph API and what a finalized one means. Used by the cudnn_*.cpp files.
//
// A descriptor is a bag of attributes (checked against the table in cudnn_attributes.cpp) until it is finalized; then
// it holds its meaning in one of the structures below and does not change any more. A child is copied when it is set,
// as cuDNN does it, so that its handle may be destroyed early.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cudasim/numbers.h"

namespace cudasim {

struct TensorInfo {
  std::int64_t unique_id = 0;
  ElementType type = ElementType::float32;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  std::int64_t alignment = 0;
  bool is_virtual = false;
  // Its address in a variant pack is one of host memory, read at the call.
  bool by_value = false;

  std::int64_t numel() const;
  // Elements from the first to behind the last one, gaps included.
  std::int64_t extent() const;
};

// Of a convolution or a pooling window, for each spatial dimension.
struct WindowInfo {
  std::vector<std::int64_t> size;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> dilation;
  std::vector<std::int64_t> pre_padding;
  std::vector<std::int64_t> post_padding;
};

struct PointwiseInfo {
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  double relu_lower_clip = 0;
  double relu_upper_clip = 0;  // 0: none
  double relu_lower_clip_slope = 0;
};

struct ResampleInfo {
  cudnnResampleMode_t mode = CUDNN_RESAMPLE_MAXPOOL;
  cudnnPaddingMode_t padding_mode = CUDNN_ZERO_PAD;
  WindowInfo window;
};

// One operation of a graph. Beside the operands, the members that its kind has no use for have their defaults.
struct Operation {
  struct Operand {
    cudnnBackendAttributeName_t role{};
    TensorInfo tensor;
    bool output = false;
  };
  cudnnBackendDescriptorType_t kind{};
  std::vector<Operand> operands;
  WindowInfo window;
  bool flip_window = false;
  PointwiseInfo pointwise;
  ResampleInfo resample;
  cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;
  cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
  cudnnBnFinalizeStatsMode_t finalize_mode = CUDNN_BN_FINALIZE_STATISTICS_TRAINING;
  double alpha = 1;
  double beta = 0;
  // Pointwise operations: factor of b, as alpha is one of x.
  double alpha2 = 1;

  // nullptr if the operation has no such operand.
  const TensorInfo* find(cudnnBackendAttributeName_t role) const;
};

// Operations in an order in which each one comes after those whose results it reads.
struct OperationGraph {
  std::vector<Operation> operations;
};

// One way to run a graph.
struct EngineConfiguration {
  std::int64_t global_index = 0;
  // Tells configurations of one engine apart.
  std::int64_t kernel_choice = 0;
  std::int64_t workspace_nbytes = 0;
  std::vector<cudnnBackendNumericalNote_t> numerical_notes;
  std::vector<cudnnBackendBehaviorNote_t> behavior_notes;
  // Rounds the factors of products to TF32.
  bool tf32 = false;
  // Whether an execution plan can be made of it; cuDNN offers some of which it cannot.
  bool builds = true;
};

struct Attribute {
  cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64;
  std::int64_t count = 0;
  std::vector<std::byte> bytes;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  std::map<cudnnBackendAttributeName_t, std::vector<std::shared_ptr<const Descriptor>>> children;

  // Meanings, each set by the finalization of its type.
  TensorInfo tensor;
  WindowInfo window;
  PointwiseInfo pointwise;
  ResampleInfo resample;
  std::shared_ptr<const Operation> operation;
  std::shared_ptr<const OperationGraph> graph;
  std::vector<EngineConfiguration> configurations;  // of heuristics: all; of an engine, configuration or plan: its one

  bool has(cudnnBackendAttributeName_t name) const { return attributes.count(name) != 0; }
  // Value i of an attribute that is set; T must be the C type of the attribute's type.
  template <class T>
  T get(cudnnBackendAttributeName_t name, std::int64_t i = 0) const {
    return reinterpret_cast<const T*>(attributes.at(name).bytes.data())[i];
  }
  template <class T>
  T get_or(cudnnBackendAttributeName_t name, T otherwise) const {
    return has(name) ? get<T>(name) : otherwise;
  }
  std::vector<std::int64_t> integers(cudnnBackendAttributeName_t name) const;
  // nullptr if it is not set.
  const Descriptor* child(cudnnBackendAttributeName_t name) const;
};

// Reports a failure: keeps the text for cudnnGetLastErrorString() and returns the status.
cudnnStatus_t cudnn_failure(cudnnStatus_t status, const std::string& text);

// What may be set on a descriptor of a type.
struct AttributeRule {
  cudnnBackendDescriptorType_t descriptor{};
  cudnnBackendAttributeName_t name{};
  cudnnBackendAttributeType_t type{};
  std::int64_t max_count = 1;
  // Missing at finalization: CUDNN_STATUS_BAD_PARAM.
  bool required = false;
  const char* text = "";
};
// nullptr if the type has no such attribute.
const AttributeRule* find_rule(cudnnBackendDescriptorType_t descriptor, cudnnBackendAttributeName_t name);
const std::vector<AttributeRule>& attribute_rules();
// Bytes of one element of an attribute of this type.
std::size_t attribute_element_nbytes(cudnnBackendAttributeType_t type);

// Check a descriptor's attributes and work out its meaning; one function per file of that name.
cudnnStatus_t finalize_simple(Descriptor& descriptor);     // tensors, convolution, pointwise, resample, ...
cudnnStatus_t finalize_operation(Descriptor& descriptor);  // operations
cudnnStatus_t finalize_graph(Descriptor& descriptor);      // the operation graph
cudnnStatus_t finalize_engine(Descriptor& descriptor);     // heuristics, engine, its configuration, execution plan
// The configurations of a graph in one mode of the heuristics, best first; none if cuDNN has no engine for it.
std::vector<EngineConfiguration> configurations_of(const OperationGraph& graph, cudnnBackendHeurMode_t mode);

// The element type of a cuDNN data type; false if the simulation does not have it.
bool find_element_type(cudnnDataType_t data_type, ElementType* type);
bool is_operation(cudnnBackendDescriptorType_t type);

// The stream and device behind a handle; device is -1 if it is no handle.
struct CudnnHandleInfo {
  int device = -1;
  cudaStream_t stream = nullptr;
};
CudnnHandleInfo find_cudnn_handle(cudnnHandle_t handle);
// nullptr if the handle is none, or has been destroyed.
Descriptor* find_cudnn_descriptor(cudnnBackendDescriptor_t handle);

}  // namespace cudasim
