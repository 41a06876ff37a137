#include "tests/cudasim/cudnn_compute.h"

#include <numeric>
#include <utility>

namespace cudasim {
namespace {

bool is_dense(const TensorInfo& tensor, const Values& values) {
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] != 1 && tensor.strides[i] != values.strides[i]) return false;
  }
  return true;
}

// Calls visit(run in the tensor, first element in the values) for runs that together cover the tensor.
template <class Visitor>
void for_each_run(const TensorInfo& tensor, const Values& values, const Visitor& visit) {
  if (is_dense(tensor, values)) return visit(ElementRun{.type = tensor.type, .n = values.numel()}, std::int64_t{0});
  const std::vector<std::size_t> order = storage_order(tensor.dims.size());
  const std::size_t innermost = order.back();
  std::vector<std::int64_t> index(tensor.dims.size());
  const std::int64_t length = tensor.dims[innermost];
  for (std::int64_t start = 0; start < values.numel(); start += length) {
    std::int64_t first = 0, rest = start / length;
    for (std::size_t i = order.size() - 1; i-- > 0;) {
      first += rest % tensor.dims[order[i]] * tensor.strides[order[i]];
      rest /= tensor.dims[order[i]];
    }
    visit(ElementRun{.type = tensor.type, .first = first, .stride = tensor.strides[innermost], .n = length}, start);
  }
}

}  // namespace

std::vector<std::size_t> storage_order(std::size_t rank) {
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (rank >= 4) {
    order.erase(order.begin() + 1);
    order.push_back(1);
  }
  return order;
}

Values::Values(std::vector<std::int64_t> dimensions) : dims(std::move(dimensions)), strides(dims.size()) {
  std::int64_t numel = 1;
  const std::vector<std::size_t> order = storage_order(dims.size());
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = numel;
    numel *= dims[order[i]];
  }
  data.assign(static_cast<std::size_t>(numel), 0.0);
}

Values load_values(const TensorInfo& tensor, const void* view) {
  Values values(tensor.dims);
  for_each_run(tensor, values, [&](const ElementRun& run, std::int64_t start) {
    read_elements(view, run, values.data.data() + start);
  });
  return values;
}

void store_values(const TensorInfo& tensor, const Values& values, void* view) {
  for_each_run(tensor, values, [&](const ElementRun& run, std::int64_t start) {
    write_elements(view, run, values.data.data() + start);
  });
}

void TensorTable::put_constant(std::int64_t unique_id, double value) {
  Values values({1});
  values.data[0] = value;
  values_.insert_or_assign(unique_id, std::move(values));
}

const Values& TensorTable::input(const Operation& operation, cudnnBackendAttributeName_t role) {
  const TensorInfo& tensor = *operation.find(role);
  auto found = values_.find(tensor.unique_id);
  if (found == values_.end()) {
    found = values_.emplace(tensor.unique_id, load_values(tensor, open_(tensor, false))).first;
  }
  return found->second;
}

double TensorTable::scalar(const Operation& operation, cudnnBackendAttributeName_t role) {
  return input(operation, role).data.front();
}

void TensorTable::output(const Operation& operation, cudnnBackendAttributeName_t role, Values values) {
  const TensorInfo* tensor = operation.find(role);
  if (tensor == nullptr) return;
  if (tensor->type == ElementType::float32) {
    for (double& value : values.data) value = static_cast<float>(value);
  } else {
    for (double& value : values.data) value = round_to(tensor->type, value);
  }
  if (!tensor->is_virtual) store_values(*tensor, values, open_(*tensor, true));
  values_.insert_or_assign(tensor->unique_id, std::move(values));
}

void compute_operation(const Operation& operation, const ComputeOptions& options, TensorTable& tensors) {
  switch (operation.kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return compute_convolution(operation, options, tensors);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return compute_matmul(operation, options, tensors);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return compute_pointwise(operation, tensors);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return compute_reduction(operation, tensors);
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR: return compute_pooling(operation, tensors);
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR: return compute_norm(operation, tensors);
    default: return compute_statistics(operation, tensors);
  }
}

}  // namespace cudasim
