// The simulated cuDNN's graph API: descriptors are made, filled, finalized and read here. What finalizing means is in
// the files of cudnn_descriptor.h. Status codes are those that cuDNN 9.19 was seen to give without a GPU.
#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/cudasim/cudnn_descriptor.h"
#include "tests/cudasim/internal.h"

namespace cudasim {
namespace {

constexpr const char* kDescriptor = "cuDNN descriptor";

bool is_known(cudnnBackendDescriptorType_t type) {
  if (type == CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR) return true;
  for (const AttributeRule& rule : attribute_rules()) {
    if (rule.descriptor == type) return true;
  }
  return false;
}

cudnnStatus_t set_children(Descriptor& descriptor, const AttributeRule& rule, std::int64_t count,
                           const cudnnBackendDescriptor_t* handles) {
  std::vector<std::shared_ptr<const Descriptor>> children;
  for (std::int64_t i = 0; i < count; ++i) {
    const Descriptor* child = find_cudnn_descriptor(handles[i]);
    if (child == nullptr) {
      return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, std::string(rule.text) + ": no descriptor");
    }
    const bool must_be_finalized = rule.name == CUDNN_ATTR_OPERATIONGRAPH_OPS;
    if (must_be_finalized && !child->finalized) {
      return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, std::string(rule.text) + ": not finalized");
    }
    children.push_back(std::make_shared<const Descriptor>(*child));
  }
  descriptor.children[rule.name] = std::move(children);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_attribute(Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::int64_t count, const void* values) {
  const AttributeRule* rule = find_rule(descriptor.type, name);
  if (descriptor.finalized) return cudnn_failure(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
  if (rule == nullptr) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM, "descriptor type " + std::to_string(descriptor.type) +
                                                     " has no attribute " + std::to_string(name));
  }
  const bool float_for_double = rule->type == CUDNN_TYPE_DOUBLE && type == CUDNN_TYPE_FLOAT;
  if (type != rule->type && !float_for_double) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, std::string(rule->text) + ": wrong attribute type");
  }
  if (count < 0 || (rule->max_count == 1 ? count != 1 : count > rule->max_count)) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM, std::string(rule->text) + ": wrong count " + std::to_string(count));
  }
  if (values == nullptr && count > 0) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM, std::string(rule->text) + ": null pointer");
  }
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    return set_children(descriptor, *rule, count, static_cast<const cudnnBackendDescriptor_t*>(values));
  }
  Attribute& attribute = descriptor.attributes[name];
  attribute.type = rule->type;
  attribute.count = count;
  const std::size_t nbytes = static_cast<std::size_t>(count) * attribute_element_nbytes(rule->type);
  attribute.bytes.assign(nbytes, std::byte{0});
  if (float_for_double) {
    const double value = *static_cast<const float*>(values);
    std::memcpy(attribute.bytes.data(), &value, sizeof value);
  } else if (nbytes != 0) {
    std::memcpy(attribute.bytes.data(), values, nbytes);
  }
  return CUDNN_STATUS_SUCCESS;
}

// What a program can ask of a finalized descriptor beyond what it has set: values as raw bytes.
struct Answer {
  bool found = false;
  cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64;
  std::vector<std::byte> bytes;
  std::vector<Descriptor> descriptors;
};

template <class T>
Answer answer_of(cudnnBackendAttributeType_t type, const std::vector<T>& values) {
  Answer answer{.found = true, .type = type};
  answer.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(answer.bytes.data(), values.data(), answer.bytes.size());
  return answer;
}
Answer answer_of(std::vector<Descriptor> descriptors) {
  return {.found = true, .type = CUDNN_TYPE_BACKEND_DESCRIPTOR, .descriptors = std::move(descriptors)};
}

Descriptor derived(cudnnBackendDescriptorType_t type, const Descriptor& from, EngineConfiguration configuration) {
  Descriptor descriptor;
  descriptor.type = type;
  descriptor.finalized = true;
  descriptor.graph = from.graph;
  descriptor.configurations = {std::move(configuration)};
  return descriptor;
}

Descriptor knob_choice(const EngineConfiguration& configuration) {
  Descriptor descriptor;
  descriptor.type = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
  const auto put = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const auto& value) {
    Attribute& attribute = descriptor.attributes[name];
    attribute = {.type = type, .count = 1, .bytes = std::vector<std::byte>(sizeof value)};
    std::memcpy(attribute.bytes.data(), &value, sizeof value);
  };
  put(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_KERNEL_CFG);
  put(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, configuration.kernel_choice);
  descriptor.finalized = true;
  return descriptor;
}

Answer ask(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const auto only = [&]() -> const EngineConfiguration& { return descriptor.configurations.front(); };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      if (descriptor.type != CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) return {};
      std::vector<Descriptor> results;
      for (const EngineConfiguration& configuration : descriptor.configurations) {
        results.push_back(derived(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, descriptor, configuration));
      }
      return answer_of(std::move(results));
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      if (descriptor.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return {};
      return answer_of({derived(CUDNN_BACKEND_ENGINE_DESCRIPTOR, descriptor, only())});
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      if (descriptor.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return {};
      return answer_of({knob_choice(only())});
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      if (descriptor.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return {};
      return answer_of(CUDNN_TYPE_INT64, std::vector<std::int64_t>{only().global_index});
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      if (descriptor.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return {};
      return answer_of(CUDNN_TYPE_NUMERICAL_NOTE, only().numerical_notes);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      if (descriptor.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return {};
      return answer_of(CUDNN_TYPE_BEHAVIOR_NOTE, only().behavior_notes);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      if (descriptor.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return {};
      return answer_of(CUDNN_TYPE_INT64, std::vector<std::int64_t>{only().workspace_nbytes});
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
      if (descriptor.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return {};
      return answer_of(CUDNN_TYPE_INT64, std::vector<std::int64_t>{only().workspace_nbytes});
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: {
      if (descriptor.type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) return {};
      std::int64_t count = 0;
      for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        for (const EngineConfiguration& configuration : configurations_of(*descriptor.graph, mode)) {
          count = std::max(count, configuration.global_index + 1);
        }
      }
      return answer_of(CUDNN_TYPE_INT64, std::vector<std::int64_t>{count});
    }
    default: break;
  }
  if (find_rule(descriptor.type, name) == nullptr) return {};
  if (const auto found = descriptor.attributes.find(name); found != descriptor.attributes.end()) {
    return {.found = true, .type = found->second.type, .bytes = found->second.bytes};
  }
  const auto children = descriptor.children.find(name);
  if (children == descriptor.children.end()) return {};
  std::vector<Descriptor> copies;
  for (const auto& child : children->second) copies.push_back(*child);
  return answer_of(std::move(copies));
}

cudnnStatus_t get_attribute(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t requested, std::int64_t* count,
                            void* values) {
  if (!descriptor.finalized) return cudnn_failure(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not finalized");
  Answer answer = ask(descriptor, name);
  if (!answer.found) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM, "descriptor type " + std::to_string(descriptor.type) +
                                                     " has no value for attribute " + std::to_string(name));
  }
  if (type != answer.type) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "wrong attribute type");
  const bool is_children = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
  const std::size_t element_nbytes = attribute_element_nbytes(type);
  const auto available =
      static_cast<std::int64_t>(is_children ? answer.descriptors.size() : answer.bytes.size() / element_nbytes);
  if (values == nullptr || requested <= 0) {
    if (count != nullptr) *count = available;
    return CUDNN_STATUS_SUCCESS;
  }
  const std::int64_t copied = std::min(available, requested);
  if (is_children) {
    for (std::int64_t i = 0; i < copied; ++i) {
      Descriptor* target = find_cudnn_descriptor(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
      Descriptor& source = answer.descriptors[static_cast<std::size_t>(i)];
      if (target == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor to fill");
      if (target->type != source.type) {
        return cudnn_failure(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor of another type to fill");
      }
      *target = std::move(source);
    }
  } else if (copied > 0) {
    std::memcpy(values, answer.bytes.data(), static_cast<std::size_t>(copied) * element_nbytes);
  }
  if (count != nullptr) *count = copied;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_required(const Descriptor& descriptor) {
  for (const AttributeRule& rule : attribute_rules()) {
    if (rule.descriptor != descriptor.type || !rule.required) continue;
    const bool set = descriptor.has(rule.name) || descriptor.children.count(rule.name) != 0;
    if (!set) return cudnn_failure(CUDNN_STATUS_BAD_PARAM, std::string(rule.text) + " is not set");
  }
  for (const auto& [name, children] : descriptor.children) {
    for (const auto& child : children) {
      if (!child->finalized) return cudnn_failure(CUDNN_STATUS_BAD_PARAM, "a child descriptor is not finalized");
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(Descriptor& descriptor) {
  if (descriptor.finalized) return cudnn_failure(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized already");
  if (const cudnnStatus_t status = check_required(descriptor)) return status;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (is_operation(descriptor.type)) {
    status = finalize_operation(descriptor);
  } else if (descriptor.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    status = finalize_graph(descriptor);
  } else if (descriptor.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR ||
             descriptor.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR ||
             descriptor.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR ||
             descriptor.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    status = finalize_engine(descriptor);
  } else {
    status = finalize_simple(descriptor);
  }
  descriptor.finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

}  // namespace

Descriptor* find_cudnn_descriptor(cudnnBackendDescriptor_t handle) {
  return handle != nullptr && handle_alive(kDescriptor, handle) ? static_cast<Descriptor*>(handle) : nullptr;
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUDASIM_API cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                       cudnnBackendDescriptor_t* handle) {
  const Lock lock;
  if (const int status = injected_library("cudnnBackendCreateDescriptor")) return static_cast<cudnnStatus_t>(status);
  if (handle == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the descriptor");
  if (!is_known(type)) {
    return cudnn_failure(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                         "unknown descriptor type " + std::to_string(type));
  }
  auto* descriptor = new Descriptor;
  descriptor->type = type;
  *handle = descriptor;
  handle_created(kDescriptor, descriptor);
  return CUDNN_STATUS_SUCCESS;
}

CUDASIM_API cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  const Lock lock;
  if (handle == nullptr || !handle_destroyed(kDescriptor, handle)) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM, "no descriptor to destroy");
  }
  delete static_cast<Descriptor*>(handle);
  return CUDNN_STATUS_SUCCESS;
}

CUDASIM_API cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t handle) {
  const Lock lock;
  Descriptor* descriptor = find_cudnn_descriptor(handle);
  if (descriptor == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  const cudnnBackendDescriptorType_t type = descriptor->type;
  *descriptor = Descriptor{};
  descriptor->type = type;
  return CUDNN_STATUS_SUCCESS;
}

CUDASIM_API cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t count,
                                                   const void* values) {
  const Lock lock;
  if (const int status = injected_library("cudnnBackendSetAttribute")) return static_cast<cudnnStatus_t>(status);
  Descriptor* descriptor = find_cudnn_descriptor(handle);
  if (descriptor == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  return set_attribute(*descriptor, name, type, count, values);
}

CUDASIM_API cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                                   void* values) {
  const Lock lock;
  if (const int status = injected_library("cudnnBackendGetAttribute")) return static_cast<cudnnStatus_t>(status);
  const Descriptor* descriptor = find_cudnn_descriptor(handle);
  if (descriptor == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  return get_attribute(*descriptor, name, type, requested, count, values);
}

CUDASIM_API cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  const Lock lock;
  if (const int status = injected_library("cudnnBackendFinalize")) return static_cast<cudnnStatus_t>(status);
  Descriptor* descriptor = find_cudnn_descriptor(handle);
  if (descriptor == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  return finalize(*descriptor);
}

}  // extern "C"
