// Finalizing the simulated cuDNN's descriptors that stand for themselves: tensors, windows, modes, variant packs.
#include <algorithm>
#include <numeric>

#include "tests/cudasim/cudnn_descriptor.h"

namespace cudasim {
namespace {

cudnnStatus_t bad(const std::string& text) { return cudnn_failure(CUDNN_STATUS_BAD_PARAM, text); }

// Alignment that cuDNN demands of a tensor: a multiple of the element's size, where a boolean counts as one byte.
std::int64_t alignment_unit(ElementType type) { return std::max<std::int64_t>(element_bits(type) / 8, 1); }

cudnnStatus_t finalize_tensor(Descriptor& descriptor) {
  TensorInfo& tensor = descriptor.tensor;
  const auto data_type = descriptor.get_or(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  if (!find_element_type(data_type, &tensor.type)) {
    return cudnn_failure(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "data type " + std::to_string(data_type));
  }
  tensor.unique_id = descriptor.get_or<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  tensor.dims = descriptor.integers(CUDNN_ATTR_TENSOR_DIMENSIONS);
  tensor.strides = descriptor.integers(CUDNN_ATTR_TENSOR_STRIDES);
  tensor.alignment = descriptor.get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  tensor.is_virtual = descriptor.get_or(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  tensor.by_value = descriptor.get_or(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
  if (tensor.dims.size() != tensor.strides.size() || tensor.dims.empty()) {
    return bad("a tensor has " + std::to_string(tensor.dims.size()) + " dimensions and " +
               std::to_string(tensor.strides.size()) + " strides");
  }
  for (const std::int64_t stride : tensor.strides) {
    if (stride < 0) return bad("a tensor has a negative stride");
  }
  // cuDNN lets a tensor without elements pass here and has no engine for it; told apart early it costs less search.
  for (const std::int64_t dim : tensor.dims) {
    if (dim <= 0) return bad("a tensor has a dimension of " + std::to_string(dim));
  }
  if (tensor.alignment <= 0 || tensor.alignment % alignment_unit(tensor.type) != 0) {
    return bad("a tensor's alignment is " + std::to_string(tensor.alignment));
  }
  return CUDNN_STATUS_SUCCESS;
}

// Whether all lists have a value for each of n spatial dimensions.
bool have_length(const std::vector<const std::vector<std::int64_t>*>& lists, std::int64_t n) {
  return std::all_of(lists.begin(), lists.end(),
                     [n](const auto* list) { return static_cast<std::int64_t>(list->size()) == n; });
}

bool all_at_least(const std::vector<std::int64_t>& values, std::int64_t least) {
  return std::all_of(values.begin(), values.end(), [least](std::int64_t value) { return value >= least; });
}

cudnnStatus_t finalize_convolution(Descriptor& descriptor) {
  WindowInfo& window = descriptor.window;
  window.stride = descriptor.integers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  window.dilation = descriptor.integers(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  window.pre_padding = descriptor.integers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  window.post_padding = descriptor.integers(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  const auto spatial = descriptor.get<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  if (!have_length({&window.stride, &window.dilation, &window.pre_padding, &window.post_padding}, spatial)) {
    return bad("a convolution's lists are not of its " + std::to_string(spatial) + " spatial dimensions");
  }
  if (!all_at_least(window.stride, 1) || !all_at_least(window.dilation, 1) || !all_at_least(window.pre_padding, 0) ||
      !all_at_least(window.post_padding, 0)) {
    return bad("a convolution's stride or dilation is below 1 or its padding is negative");
  }
  return CUDNN_STATUS_SUCCESS;
}

// Whole numbers of an attribute of fractions; empty if one is none.
std::vector<std::int64_t> whole_numbers(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < descriptor.attributes.at(name).count; ++i) {
    const auto fraction = descriptor.get<cudnnFraction_t>(name, i);
    if (fraction.denominator == 0 || fraction.numerator % fraction.denominator != 0) return {};
    numbers.push_back(fraction.numerator / fraction.denominator);
  }
  return numbers;
}

cudnnStatus_t finalize_resample(Descriptor& descriptor) {
  ResampleInfo& resample = descriptor.resample;
  resample.mode = descriptor.get<cudnnResampleMode_t>(CUDNN_ATTR_RESAMPLE_MODE);
  resample.padding_mode = descriptor.get_or(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_ZERO_PAD);
  WindowInfo& window = resample.window;
  window.size = whole_numbers(descriptor, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS);
  window.stride = whole_numbers(descriptor, CUDNN_ATTR_RESAMPLE_STRIDES);
  window.pre_padding = whole_numbers(descriptor, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS);
  window.post_padding = whole_numbers(descriptor, CUDNN_ATTR_RESAMPLE_POST_PADDINGS);
  window.dilation.assign(window.size.size(), 1);
  if (resample.mode != CUDNN_RESAMPLE_MAXPOOL && resample.mode != CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING &&
      resample.mode != CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING) {
    return cudnn_failure(CUDNN_STATUS_NOT_SUPPORTED, "the simulation resamples by pooling only");
  }
  const auto spatial = descriptor.get<std::int64_t>(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS);
  if (!have_length({&window.size, &window.stride, &window.pre_padding, &window.post_padding}, spatial)) {
    return bad("a pooling's lists are not whole numbers for its " + std::to_string(spatial) + " spatial dimensions");
  }
  if (!all_at_least(window.size, 1) || !all_at_least(window.stride, 1) || !all_at_least(window.pre_padding, 0) ||
      !all_at_least(window.post_padding, 0)) {
    return bad("a pooling's window or stride is below 1 or its padding is negative");
  }
  // Maximum over zeros that are not there would be wrong for negative inputs.
  if (resample.mode == CUDNN_RESAMPLE_MAXPOOL && resample.padding_mode != CUDNN_NEG_INF_PAD &&
      !(std::accumulate(window.pre_padding.begin(), window.pre_padding.end(), std::int64_t{0}) == 0 &&
        std::accumulate(window.post_padding.begin(), window.post_padding.end(), std::int64_t{0}) == 0)) {
    return cudnn_failure(CUDNN_STATUS_NOT_SUPPORTED, "max pooling with padding needs CUDNN_NEG_INF_PAD");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pointwise(Descriptor& descriptor) {
  PointwiseInfo& pointwise = descriptor.pointwise;
  pointwise.mode = descriptor.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  pointwise.relu_lower_clip = descriptor.get_or(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0.0);
  pointwise.relu_upper_clip = descriptor.get_or(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 0.0);
  pointwise.relu_lower_clip_slope = descriptor.get_or(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0.0);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pack(const Descriptor& descriptor) {
  const auto count = [&](cudnnBackendAttributeName_t name) {
    return descriptor.has(name) ? descriptor.attributes.at(name).count : 0;
  };
  if (count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) != count(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)) {
    return bad("a variant pack has " + std::to_string(count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)) + " ids and " +
               std::to_string(count(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)) + " pointers");
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

std::int64_t TensorInfo::numel() const {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t TensorInfo::extent() const {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return last + 1;
}

std::vector<std::int64_t> Descriptor::integers(cudnnBackendAttributeName_t name) const {
  std::vector<std::int64_t> values;
  if (!has(name)) return values;
  for (std::int64_t i = 0; i < attributes.at(name).count; ++i) values.push_back(get<std::int64_t>(name, i));
  return values;
}

const Descriptor* Descriptor::child(cudnnBackendAttributeName_t name) const {
  const auto found = children.find(name);
  return found == children.end() || found->second.empty() ? nullptr : found->second.front().get();
}

bool find_element_type(cudnnDataType_t data_type, ElementType* type) {
  switch (data_type) {
    case CUDNN_DATA_FLOAT: *type = ElementType::float32; return true;
    case CUDNN_DATA_DOUBLE: *type = ElementType::float64; return true;
    case CUDNN_DATA_HALF: *type = ElementType::float16; return true;
    case CUDNN_DATA_BFLOAT16: *type = ElementType::bfloat16; return true;
    case CUDNN_DATA_INT8: *type = ElementType::int8; return true;
    case CUDNN_DATA_UINT8: *type = ElementType::uint8; return true;
    case CUDNN_DATA_INT32: *type = ElementType::int32; return true;
    case CUDNN_DATA_INT64: *type = ElementType::int64; return true;
    case CUDNN_DATA_BOOLEAN: *type = ElementType::boolean; return true;
    default: return false;
  }
}

cudnnStatus_t finalize_simple(Descriptor& descriptor) {
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return finalize_tensor(descriptor);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return finalize_convolution(descriptor);
    case CUDNN_BACKEND_RESAMPLE_DESCRIPTOR: return finalize_resample(descriptor);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: return finalize_pointwise(descriptor);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return finalize_pack(descriptor);
    default: return CUDNN_STATUS_SUCCESS;
  }
}

}  // namespace cudasim
