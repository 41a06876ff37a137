#include "kernels/cuda/cudnn_builders.h"

#include <algorithm>
#include <array>

namespace heddle::cuda {
namespace {

using Dims = std::array<std::int64_t, 4>;  // in cuDNN's order: N, C, H, W

bool is_convolution(GraphKind kind) { return kind <= GraphKind::conv_backward_weight; }

// Makes the operations of one graph, in order.
class Builder {
 public:
  explicit Builder(const GraphKey& key)
      : key_(key),
        g_(key.geometry),
        data_type_(key.bf16 != 0 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT),
        x_dims_{g_.batch, g_.in_c, g_.in_h, g_.in_w},
        y_dims_{g_.batch, g_.out_c, g_.out_h, g_.out_w} {}

  void build() {
    switch (key_.kind) {
      case GraphKind::conv_forward: return conv_forward();
      case GraphKind::conv_backward_data: return conv_backward_data();
      case GraphKind::conv_backward_weight: return conv_backward_weight();
      case GraphKind::norm_forward: return norm_forward();
      case GraphKind::norm_inference: return norm_inference();
      case GraphKind::norm_backward: return norm_backward();
      case GraphKind::max_pool_forward:
      case GraphKind::avg_pool_forward: return pool_forward();
      case GraphKind::max_pool_backward:
      case GraphKind::avg_pool_backward: return pool_backward();
    }
  }

  std::vector<CudnnDescriptor> take_parts() { return std::move(parts_); }
  const std::vector<cudnnBackendDescriptor_t>& operations() const noexcept { return operations_; }

 private:
  using Tensor = std::size_t;  // place in parts_

  bool has(std::int32_t flag) const { return (key_.flags & flag) != 0; }

  // (N,C,H,W) with the channels next to each other. Four elements of the innermost dimension may be one access.
  Tensor tensor(std::int64_t id, cudnnDataType_t type, const Dims& dims, bool is_virtual, bool by_value = false) {
    const Dims strides{dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
    descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
    descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    if (by_value) descriptor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    descriptor.finalize();
    parts_.push_back(std::move(descriptor));
    return parts_.size() - 1;
  }
  Tensor tensor(GraphRole role, cudnnDataType_t type, const Dims& dims) {
    return tensor(static_cast<std::int64_t>(role), type, dims, false);
  }
  Tensor data(GraphRole role, const Dims& dims) { return tensor(role, data_type_, dims); }
  Tensor channels(GraphRole role) { return tensor(role, CUDNN_DATA_FLOAT, {1, g_.in_c, 1, 1}); }
  Tensor number(GraphRole role) {
    return tensor(static_cast<std::int64_t>(role), CUDNN_DATA_FLOAT, {1, 1, 1, 1}, false, true);
  }
  // A value between two operations that is never stored.
  Tensor between(const Dims& dims) { return tensor(next_virtual_++, CUDNN_DATA_FLOAT, dims, true); }

  const CudnnDescriptor& part(Tensor place) const { return parts_[place]; }
  void add_operation(CudnnDescriptor operation) {
    operation.finalize();
    operations_.push_back(operation.get());
    parts_.push_back(std::move(operation));
  }

  Tensor convolution() {
    CudnnDescriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const std::array<std::int64_t, 2> stride{g_.stride_h, g_.stride_w}, padding{g_.padding_h, g_.padding_w},
        dilation{g_.dilation_h, g_.dilation_w};
    descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    descriptor.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    descriptor.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
    descriptor.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation);
    descriptor.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
    descriptor.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding);
    descriptor.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
    descriptor.finalize();
    parts_.push_back(std::move(descriptor));
    return parts_.size() - 1;
  }
  Dims w_dims() const { return {g_.out_c, g_.group_in_c, g_.kernel_h, g_.kernel_w}; }

  // result = alpha op + beta result, with beta 1 where gradients are added.
  void set_scales(CudnnDescriptor& operation, cudnnBackendAttributeName_t alpha_name,
                  cudnnBackendAttributeName_t beta_name, bool add) const {
    const float alpha = 1, beta = add ? 1.0f : 0.0f;
    operation.set(alpha_name, CUDNN_TYPE_FLOAT, alpha);
    operation.set(beta_name, CUDNN_TYPE_FLOAT, beta);
  }

  void conv_forward() {
    const Tensor conv = convolution(), x = data(GraphRole::x, x_dims_), w = data(GraphRole::w, w_dims());
    const bool last = !has(graph_flag::kBias) && !has(graph_flag::kRelu);
    Tensor y = last ? data(GraphRole::y, y_dims_) : between(y_dims_);
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, part(conv));
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, part(x));
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, part(w));
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, part(y));
    set_scales(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
               false);
    add_operation(std::move(operation));
    if (has(graph_flag::kBias)) {
      const Tensor bias = data(GraphRole::bias, {1, g_.out_c, 1, 1});
      const Tensor sum = has(graph_flag::kRelu) ? between(y_dims_) : data(GraphRole::y, y_dims_);
      pointwise(CUDNN_POINTWISE_ADD, y, &bias, sum);
      y = sum;
    }
    if (has(graph_flag::kRelu)) pointwise(CUDNN_POINTWISE_RELU_FWD, y, nullptr, data(GraphRole::y, y_dims_));
  }

  void conv_backward_data() {
    const Tensor conv = convolution(), w = data(GraphRole::w, w_dims()), dy = data(GraphRole::dy, y_dims_),
                 dx = data(GraphRole::dx, x_dims_);
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, part(conv));
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, part(w));
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, part(dy));
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, part(dx));
    set_scales(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, has(graph_flag::kAdd));
    add_operation(std::move(operation));
  }

  void conv_backward_weight() {
    const Tensor conv = convolution(), x = data(GraphRole::x, x_dims_), dy = data(GraphRole::dy, y_dims_),
                 dw = data(GraphRole::dw, w_dims());
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, part(conv));
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, part(x));
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, part(dy));
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, part(dw));
    set_scales(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, has(graph_flag::kAdd));
    add_operation(std::move(operation));
  }

  // y = f(x), or f(x, *b).
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, const Tensor* b, Tensor y) {
    CudnnDescriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    function.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
      function.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
    }
    function.finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, part(x));
    if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, part(*b));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, part(y));
    parts_.push_back(std::move(function));
    add_operation(std::move(operation));
  }

  // What follows a batch norm that left its result in y: [+ addend] [ReLU [mask]].
  void finish_norm(Tensor y) {
    if (has(graph_flag::kAdd)) {
      const Tensor addend = data(GraphRole::addend, x_dims_);
      const Tensor sum = has(graph_flag::kRelu) ? between(x_dims_) : data(GraphRole::y, x_dims_);
      pointwise(CUDNN_POINTWISE_ADD, y, &addend, sum);
      y = sum;
    }
    if (!has(graph_flag::kRelu)) return;
    const Tensor result = data(GraphRole::y, x_dims_);
    pointwise(CUDNN_POINTWISE_RELU_FWD, y, nullptr, result);
    if (!has(graph_flag::kMask)) return;
    const Tensor zero = number(GraphRole::zero);
    pointwise(CUDNN_POINTWISE_CMP_GT, result, &zero, tensor(GraphRole::mask, CUDNN_DATA_BOOLEAN, x_dims_));
  }
  Tensor norm_result() {
    return has(graph_flag::kAdd) || has(graph_flag::kRelu) ? between(x_dims_) : data(GraphRole::y, x_dims_);
  }
  CudnnDescriptor norm_operation(cudnnBackendNormFwdPhase_t phase, Tensor x, Tensor y) {
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, phase);
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, part(x));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, part(y));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, part(channels(GraphRole::mean)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, part(channels(GraphRole::inv_std)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, part(channels(GraphRole::scale)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, part(channels(GraphRole::bias)));
    return operation;
  }

  void norm_forward() {
    const Tensor x = data(GraphRole::x, x_dims_), y = norm_result();
    CudnnDescriptor operation = norm_operation(CUDNN_NORM_FWD_TRAINING, x, y);
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, part(channels(GraphRole::running_mean)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, part(channels(GraphRole::running_var)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, part(channels(GraphRole::new_running_mean)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, part(channels(GraphRole::new_running_var)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, part(number(GraphRole::epsilon)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, part(number(GraphRole::momentum)));
    add_operation(std::move(operation));
    finish_norm(y);
  }

  // y = (x - mean) / sqrt(variance + epsilon) * scale + bias as pointwise operations: cuDNN has engines for these
  // chains, and documents none for the inference phase of batch norm.
  void norm_inference() {
    const Tensor x = data(GraphRole::x, x_dims_), mean = channels(GraphRole::running_mean),
                 variance = channels(GraphRole::running_var), epsilon = number(GraphRole::epsilon),
                 scale = channels(GraphRole::scale), bias = channels(GraphRole::bias);
    const Dims vector{1, g_.in_c, 1, 1};
    const Tensor raised = between(vector), inv_std = between(vector);
    pointwise(CUDNN_POINTWISE_ADD, variance, &epsilon, raised);
    pointwise(CUDNN_POINTWISE_RSQRT, raised, nullptr, inv_std);
    const Tensor centred = between(x_dims_), normalised = between(x_dims_), scaled = between(x_dims_);
    pointwise(CUDNN_POINTWISE_SUB, x, &mean, centred);
    pointwise(CUDNN_POINTWISE_MUL, centred, &inv_std, normalised);
    pointwise(CUDNN_POINTWISE_MUL, normalised, &scale, scaled);
    const Tensor y = norm_result();
    pointwise(CUDNN_POINTWISE_ADD, scaled, &bias, y);
    finish_norm(y);
  }

  void norm_backward() {
    const Tensor x = data(GraphRole::x, x_dims_);
    Tensor dy = data(GraphRole::dy, x_dims_);
    if (has(graph_flag::kMask)) {
      const Tensor mask = tensor(GraphRole::mask, CUDNN_DATA_BOOLEAN, x_dims_);
      const Tensor masked = has(graph_flag::kKeepMasked) ? data(GraphRole::masked, x_dims_)
                                                         : tensor(next_virtual_++, data_type_, x_dims_, true);
      pointwise(CUDNN_POINTWISE_MUL, dy, &mask, masked);
      dy = masked;
    }
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
    operation.set(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, part(x));
    operation.set(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, part(dy));
    operation.set(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, part(data(GraphRole::dx, x_dims_)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, part(channels(GraphRole::mean)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, part(channels(GraphRole::inv_std)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, part(channels(GraphRole::scale)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, part(channels(GraphRole::dscale)));
    operation.set(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, part(channels(GraphRole::dbias)));
    add_operation(std::move(operation));
  }

  Tensor resampling() {
    const bool max = key_.kind == GraphKind::max_pool_forward || key_.kind == GraphKind::max_pool_backward;
    const cudnnResampleMode_t mode = max                              ? CUDNN_RESAMPLE_MAXPOOL
                                     : has(graph_flag::kCountPadding) ? CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING
                                                                      : CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING;
    const auto pair = [](int h, int w) {
      return std::array<cudnnFraction_t, 2>{cudnnFraction_t{h, 1}, cudnnFraction_t{w, 1}};
    };
    const auto window = pair(g_.kernel_h, g_.kernel_w), stride = pair(g_.stride_h, g_.stride_w),
               padding = pair(g_.padding_h, g_.padding_w);
    CudnnDescriptor descriptor(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    descriptor.set(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, mode);
    descriptor.set(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_DATA_FLOAT);
    descriptor.set(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, std::int64_t{2});
    descriptor.set(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
    descriptor.set(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, max ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD);
    descriptor.set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, 2, window.data());
    descriptor.set(CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, 2, stride.data());
    descriptor.set(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, 2, padding.data());
    descriptor.set(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, 2, padding.data());
    descriptor.finalize();
    parts_.push_back(std::move(descriptor));
    return parts_.size() - 1;
  }

  void pool_forward() {
    const Tensor resample = resampling(), x = data(GraphRole::x, x_dims_), y = data(GraphRole::y, y_dims_);
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, part(resample));
    operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, part(x));
    operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, part(y));
    if (has(graph_flag::kIndex)) {
      operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC,
                    part(tensor(GraphRole::index, CUDNN_DATA_INT8, y_dims_)));
    }
    add_operation(std::move(operation));
  }

  void pool_backward() {
    const Tensor resample = resampling(), dx = data(GraphRole::dx, x_dims_), dy = data(GraphRole::dy, y_dims_);
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, part(resample));
    operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, part(dx));
    operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, part(dy));
    if (key_.kind == GraphKind::max_pool_backward) {
      operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC,
                    part(tensor(GraphRole::index, CUDNN_DATA_INT8, y_dims_)));
    }
    add_operation(std::move(operation));
  }

  const GraphKey& key_;
  const ConvGeometry& g_;
  cudnnDataType_t data_type_;
  Dims x_dims_, y_dims_;
  std::int64_t next_virtual_ = 1000;
  std::vector<CudnnDescriptor> parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
};

bool has_note(const std::vector<cudnnBackendNumericalNote_t>& notes, cudnnBackendNumericalNote_t note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

}  // namespace

OperationGraph build_operation_graph(const GraphKey& key, cudnnHandle_t handle) {
  Builder builder(key);
  builder.build();
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<std::int64_t>(builder.operations().size()), builder.operations().data());
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.finalize();
  return {builder.take_parts(), std::move(graph)};
}

std::vector<EngineCandidate> engine_candidates(const OperationGraph& graph, bool fallback,
                                               const CudnnDescriptor* device_properties) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
                fallback ? CUDNN_HEUR_MODE_FALLBACK : CUDNN_HEUR_MODE_A);
  if (device_properties != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device_properties);
  if (heuristic.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  std::vector<EngineCandidate> candidates;
  for (CudnnDescriptor& configuration :
       heuristic.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
    const auto engines = configuration.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    const auto notes =
        engines.at(0).get_all<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
    candidates.push_back({.configuration = std::move(configuration),
                          .nondeterministic = has_note(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC),
                          .rounds_factors = has_note(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
                                            has_note(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)});
  }
  return candidates;
}

bool is_allowed(const EngineCandidate& candidate, const GraphKey& key, bool tf32, bool deterministic) {
  if (deterministic && candidate.nondeterministic) return false;
  // Only products have factors; engines that are compiled at run time carry the note whatever they compute.
  return tf32 || key.bf16 != 0 || !is_convolution(key.kind) || !candidate.rounds_factors;
}

}  // namespace heddle::cuda
