// Finalizing the simulated cuDNN's operations and operation graphs: operands, their shapes, and the order of execution.
#include <algorithm>
#include <set>

#include "tests/cudasim/cudnn_descriptor.h"

namespace cudasim {
namespace {

cudnnStatus_t bad(const std::string& text) { return cudnn_failure(CUDNN_STATUS_BAD_PARAM, text); }

bool is_output(const Operation& operation, cudnnBackendAttributeName_t role) {
  switch (role) {
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW:
    case CUDNN_ATTR_OPERATION_POINTWISE_DXDESC:
    case CUDNN_ATTR_OPERATION_MATMUL_CDESC:
    case CUDNN_ATTR_OPERATION_REDUCTION_YDESC:
    case CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC:
    case CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC:
    case CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC:
    case CUDNN_ATTR_OPERATION_NORM_FWD_YDESC:
    case CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC:
    case CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC:
    case CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC:
    case CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC:
    case CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC:
    case CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC:
    case CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC:
    case CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC:
    case CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC:
    case CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC:
    case CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC:
    case CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC:
    case CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC: return true;
    // The gradient modes write dx and read y.
    case CUDNN_ATTR_OPERATION_POINTWISE_YDESC: return operation.find(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC) == nullptr;
    case CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC:
    case CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC: return operation.phase == CUDNN_NORM_FWD_TRAINING;
    default: return false;
  }
}

// The names under which the three convolutions have the same things.
struct ConvolutionRoles {
  cudnnBackendAttributeName_t descriptor, image, filter, result, alpha, beta;
};
ConvolutionRoles convolution_roles(cudnnBackendDescriptorType_t kind) {
  switch (kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

// Positions of a window over n elements.
std::int64_t positions(std::int64_t n, const WindowInfo& window, std::size_t i) {
  const std::int64_t reach = window.dilation[i] * (window.size[i] - 1) + 1;
  const std::int64_t room = n + window.pre_padding[i] + window.post_padding[i] - reach;
  return room < 0 ? 0 : room / window.stride[i] + 1;
}

cudnnStatus_t check_convolution(const Descriptor& descriptor, Operation& operation) {
  const ConvolutionRoles roles = convolution_roles(operation.kind);
  const Descriptor& convolution = *descriptor.child(roles.descriptor);
  if (convolution.type != CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) return bad("no convolution descriptor");
  operation.window = convolution.window;
  operation.flip_window =
      convolution.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION;
  operation.alpha = descriptor.get_or(roles.alpha, 1.0);
  operation.beta = descriptor.get_or(roles.beta, 0.0);
  const TensorInfo& x = *operation.find(roles.image);
  const TensorInfo& w = *operation.find(roles.filter);
  const TensorInfo& y = *operation.find(roles.result);
  const std::size_t rank = operation.window.stride.size() + 2;
  if (x.dims.size() != rank || w.dims.size() != rank || y.dims.size() != rank) {
    return bad("a convolution's tensors are not of " + std::to_string(rank) + " dimensions");
  }
  if (x.dims[1] % w.dims[1] != 0) {
    return bad("a convolution's x has " + std::to_string(x.dims[1]) + " channels, w expects " +
               std::to_string(w.dims[1]));
  }
  // Fewer channels in w than in x: groups of channels, which divide the outputs, too.
  if (w.dims[0] % (x.dims[1] / w.dims[1]) != 0) return bad("a convolution's groups do not divide its outputs");
  if (y.dims[1] != w.dims[0] || y.dims[0] != x.dims[0]) {
    return bad("a convolution's y does not have x's images and w's channels");
  }
  operation.window.size.assign(w.dims.begin() + 2, w.dims.end());
  for (std::size_t i = 0; i + 2 < rank; ++i) {
    if (y.dims[i + 2] != positions(x.dims[i + 2], operation.window, i)) {
      return bad("a convolution's y is " + std::to_string(y.dims[i + 2]) + " long where " +
                 std::to_string(positions(x.dims[i + 2], operation.window, i)) + " follow from x and w");
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

bool is_binary(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_ADD_SQUARE:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_MAX:
    case CUDNN_POINTWISE_MIN:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_CMP_EQ:
    case CUDNN_POINTWISE_CMP_NEQ:
    case CUDNN_POINTWISE_CMP_GT:
    case CUDNN_POINTWISE_CMP_GE:
    case CUDNN_POINTWISE_CMP_LT:
    case CUDNN_POINTWISE_CMP_LE:
    case CUDNN_POINTWISE_BINARY_SELECT: return true;
    default: return false;
  }
}

cudnnStatus_t check_pointwise(const Descriptor& descriptor, Operation& operation) {
  const Descriptor& pointwise = *descriptor.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  if (pointwise.type != CUDNN_BACKEND_POINTWISE_DESCRIPTOR) return bad("no pointwise descriptor");
  operation.pointwise = pointwise.pointwise;
  operation.alpha = descriptor.get_or(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0);
  operation.alpha2 = descriptor.get_or(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1.0);
  const TensorInfo& x = *operation.find(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  const auto has_rank_of_x = [&](cudnnBackendAttributeName_t role) {
    const TensorInfo* tensor = operation.find(role);
    return tensor != nullptr && tensor->dims.size() == x.dims.size();
  };
  if (operation.pointwise.mode == CUDNN_POINTWISE_RELU_BWD) {
    if (!has_rank_of_x(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC) ||
        !has_rank_of_x(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC)) {
      return bad("the gradient of a ReLU needs x, dy and dx of one rank");
    }
    return CUDNN_STATUS_SUCCESS;
  }
  if (operation.find(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC) != nullptr ||
      operation.find(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC) != nullptr) {
    return bad("dx and dy belong to the gradient modes");
  }
  if (!has_rank_of_x(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)) return bad("a pointwise operation needs y of x's rank");
  if (is_binary(operation.pointwise.mode) && !has_rank_of_x(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)) {
    return bad("this pointwise operation needs b of x's rank");
  }
  if (operation.pointwise.mode == CUDNN_POINTWISE_BINARY_SELECT &&
      !has_rank_of_x(CUDNN_ATTR_OPERATION_POINTWISE_TDESC)) {
    return bad("a selection needs t of x's rank");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_resample(const Descriptor& descriptor, Operation& operation) {
  const bool forward = operation.kind == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR;
  const Descriptor& resample =
      *descriptor.child(forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC);
  if (resample.type != CUDNN_BACKEND_RESAMPLE_DESCRIPTOR) return bad("no resample descriptor");
  operation.resample = resample.resample;
  const TensorInfo& x =
      *operation.find(forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC);
  const TensorInfo& y =
      *operation.find(forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC);
  const WindowInfo& window = operation.resample.window;
  if (x.dims.size() != window.size.size() + 2 || y.dims.size() != x.dims.size() || x.dims[0] != y.dims[0] ||
      x.dims[1] != y.dims[1]) {
    return bad("a pooling's tensors do not fit each other or its window");
  }
  for (std::size_t i = 0; i < window.size.size(); ++i) {
    if (y.dims[i + 2] != positions(x.dims[i + 2], window, i)) {
      return bad("a pooling's y is " + std::to_string(y.dims[i + 2]) + " long where " +
                 std::to_string(positions(x.dims[i + 2], window, i)) + " follow from x");
    }
  }
  const TensorInfo* index =
      operation.find(forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC);
  if (index != nullptr && index->dims != y.dims) return bad("a pooling's index tensor is not of y's shape");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_matmul(const Operation& operation) {
  const TensorInfo& a = *operation.find(CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  const TensorInfo& b = *operation.find(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  const TensorInfo& c = *operation.find(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  if (a.dims.size() != 3 || b.dims.size() != 3 || c.dims.size() != 3) return bad("the simulation multiplies (b,m,k)");
  if (a.dims[2] != b.dims[1] || c.dims[1] != a.dims[1] || c.dims[2] != b.dims[2]) {
    return bad("a matrix product's sizes do not fit");
  }
  if (a.dims[0] != c.dims[0] || (b.dims[0] != c.dims[0] && b.dims[0] != 1)) {
    return bad("a matrix product's batch sizes do not fit");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_reduction(const Descriptor& descriptor, Operation& operation) {
  const Descriptor& reduction = *descriptor.child(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  if (reduction.type != CUDNN_BACKEND_REDUCTION_DESCRIPTOR) return bad("no reduction descriptor");
  operation.reduction = reduction.get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
  const TensorInfo& x = *operation.find(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  const TensorInfo& y = *operation.find(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  if (x.dims.size() != y.dims.size()) return bad("a reduction's tensors are of different rank");
  for (std::size_t i = 0; i < x.dims.size(); ++i) {
    if (y.dims[i] != x.dims[i] && y.dims[i] != 1) return bad("a reduction's y is neither x's size nor 1");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_norm(const Descriptor& descriptor, Operation& operation) {
  const bool forward = operation.kind == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR;
  const auto mode = descriptor.get<cudnnBackendNormMode_t>(forward ? CUDNN_ATTR_OPERATION_NORM_FWD_MODE
                                                                   : CUDNN_ATTR_OPERATION_NORM_BWD_MODE);
  if (mode != CUDNN_BATCH_NORM) return cudnn_failure(CUDNN_STATUS_NOT_SUPPORTED, "the simulation has batch norm only");
  if (!forward || operation.phase == CUDNN_NORM_FWD_INFERENCE) return CUDNN_STATUS_SUCCESS;
  if (operation.find(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC) == nullptr) return bad("no epsilon is set");
  const auto has = [&](cudnnBackendAttributeName_t role) { return operation.find(role) != nullptr; };
  const bool running = has(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC);
  for (const auto role :
       {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
        CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC}) {
    if (has(role) != running) return bad("running statistics need all of their five tensors");
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

const TensorInfo* Operation::find(cudnnBackendAttributeName_t role) const {
  for (const Operand& operand : operands) {
    if (operand.role == role) return &operand.tensor;
  }
  return nullptr;
}

bool is_operation(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR: return true;
    default: return false;
  }
}

cudnnStatus_t finalize_operation(Descriptor& descriptor) {
  Operation operation;
  operation.kind = descriptor.type;
  operation.phase = descriptor.get_or(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING);
  operation.finalize_mode =
      descriptor.get_or(CUDNN_ATTR_OPERATION_BN_FINALIZE_STATS_MODE, CUDNN_BN_FINALIZE_STATISTICS_TRAINING);
  for (const auto& [role, children] : descriptor.children) {
    const Descriptor& child = *children.front();
    if (child.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) operation.operands.push_back({role, child.tensor, false});
  }
  for (const AttributeRule& rule : attribute_rules()) {
    const bool is_tensor =
        rule.descriptor == descriptor.type && rule.type == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
        rule.name != CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR && rule.name != CUDNN_ATTR_OPERATION_MATMUL_DESC &&
        rule.name != CUDNN_ATTR_OPERATION_REDUCTION_DESC && rule.name != CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC &&
        rule.name != CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC &&
        rule.name != convolution_roles(descriptor.type).descriptor;
    if (is_tensor && descriptor.child(rule.name) != nullptr && operation.find(rule.name) == nullptr) {
      return bad(std::string(rule.text) + " is not a tensor");
    }
  }
  for (Operation::Operand& operand : operation.operands) operand.output = is_output(operation, operand.role);
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  switch (descriptor.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      status = check_convolution(descriptor, operation);
      break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: status = check_pointwise(descriptor, operation); break;
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR: status = check_resample(descriptor, operation); break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: status = check_matmul(operation); break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: status = check_reduction(descriptor, operation); break;
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR: status = check_norm(descriptor, operation); break;
    default: break;
  }
  if (status == CUDNN_STATUS_SUCCESS) descriptor.operation = std::make_shared<const Operation>(std::move(operation));
  return status;
}

cudnnStatus_t finalize_graph(Descriptor& descriptor) {
  std::vector<Operation> waiting;
  std::set<std::int64_t> unwritten;
  for (const auto& child : descriptor.children.at(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    if (child->operation == nullptr) return bad("an operation graph holds something that is no operation");
    waiting.push_back(*child->operation);
    for (const Operation::Operand& operand : child->operation->operands) {
      if (operand.output && !unwritten.insert(operand.tensor.unique_id).second) {
        return bad("two operations write tensor " + std::to_string(operand.tensor.unique_id));
      }
    }
  }
  if (waiting.empty()) return bad("an operation graph has no operations");
  auto graph = std::make_shared<OperationGraph>();
  while (!waiting.empty()) {
    const auto ready = std::find_if(waiting.begin(), waiting.end(), [&](const Operation& operation) {
      return std::none_of(operation.operands.begin(), operation.operands.end(), [&](const Operation::Operand& operand) {
        return !operand.output && unwritten.count(operand.tensor.unique_id) != 0;
      });
    });
    if (ready == waiting.end()) return bad("an operation graph has a cycle");
    for (const Operation::Operand& operand : ready->operands) {
      if (operand.output) unwritten.erase(operand.tensor.unique_id);
    }
    graph->operations.push_back(*ready);
    waiting.erase(ready);
  }
  descriptor.graph = std::move(graph);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace cudasim
