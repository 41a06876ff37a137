#include "engine/nn/module.h"

#include <algorithm>

namespace heddle::nn {

Module::~Module() = default;

Variable Module::forward(const Variable& x) { return forward(std::span<const Variable>(&x, 1)); }

Variable Module::forward(std::span<const Variable> inputs) {
  HEDDLE_CHECK(inputs.size() == 1, description(), ": forward takes 1 input, ", inputs.size(), " were given");
  // Both defaults call each other; meeting this one again inside means that neither was overridden.
  static thread_local const Module* entered = nullptr;
  HEDDLE_CHECK(entered != this, description(), ": overrides no forward()");
  struct Restore {
    const Module* previous;
    ~Restore() { entered = previous; }
  } restore{entered};
  entered = this;
  return forward(inputs[0]);
}

Variable Module::forward_with_relu(const Variable&) { throw NotSupported(description() + ": has no fused ReLU"); }

Variable Module::forward_after_relu(const Variable&) {
  throw NotSupported(description() + ": has no fused leading ReLU");
}

Variable Module::forward_with_relu_and_pool(const Variable&, const Pooling2d&) {
  throw NotSupported(description() + ": has no fused ReLU and pooling");
}

FeatureMap Module::trace(const FeatureMap&) { return {}; }

void Module::reset_own_parameters(Philox&) {}

// Calls visit(module, prefix of its names) for this module and all below it, parents first. A module that is registered
// twice is visited under its first name only, as it has one set of parameters.
template <class Visit>
void Module::visit_modules(const std::string& prefix, const Visit& visit) const {
  std::vector<const Module*> seen;
  const auto walk = [&](const auto& self, const Module& module, const std::string& path) -> void {
    if (std::find(seen.begin(), seen.end(), &module) != seen.end()) return;
    seen.push_back(&module);
    visit(const_cast<Module&>(module), path);
    for (const auto& [name, child] : module.children_) self(self, *child, path + name + ".");
  };
  walk(walk, *this, prefix);
}

void Module::reset_parameters(Philox& random) {
  visit_modules("", [&](Module& module, const std::string&) { module.reset_own_parameters(random); });
}

std::vector<NamedVariable> Module::named_parameters() const {
  std::vector<NamedVariable> all;
  visit_modules("", [&](const Module& module, const std::string& prefix) {
    for (const NamedVariable& p : module.parameters_) all.push_back({prefix + p.name, p.variable, p.layout});
  });
  return all;
}

std::vector<NamedVariable> Module::named_buffers() const {
  std::vector<NamedVariable> all;
  visit_modules("", [&](const Module& module, const std::string& prefix) {
    for (const NamedVariable& b : module.buffers_) all.push_back({prefix + b.name, b.variable, b.layout});
  });
  return all;
}

std::vector<std::pair<std::string, RandomStream*>> Module::named_random_streams() {
  std::vector<std::pair<std::string, RandomStream*>> all;
  visit_modules("", [&](Module& module, const std::string& prefix) {
    RandomStream* const stream = module.own_random_stream();
    if (stream != nullptr) all.emplace_back(prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1), stream);
  });
  return all;
}

std::int64_t Module::num_parameters() const {
  std::int64_t count = 0;
  for (const NamedVariable& p : named_parameters()) count += p.variable.numel();
  return count;
}

void Module::train(bool on) {
  visit_modules("", [&](Module& module, const std::string&) { module.training_ = on; });
}

void Module::to(Device device) {
  const auto move = [&](NamedVariable& v) {
    if (v.variable.device() == device) return;
    v.variable.rebind(Tensor::empty(v.variable.shape(), v.variable.dtype(), device), Tensor());
  };
  visit_modules("", [&](Module& module, const std::string&) {
    std::for_each(module.parameters_.begin(), module.parameters_.end(), move);
    std::for_each(module.buffers_.begin(), module.buffers_.end(), move);
  });
}

Variable Module::register_parameter(const std::string& name, const Shape& shape, const ParameterLayout& layout) {
  check_new_name(name);
  parameters_.push_back({name, Variable(Tensor::empty(shape), true), layout});
  return parameters_.back().variable;
}

void Module::set_parameter_layout(const std::string& name, const ParameterLayout& layout) {
  const auto found =
      std::find_if(parameters_.begin(), parameters_.end(), [&](const auto& p) { return p.name == name; });
  HEDDLE_CHECK(found != parameters_.end(), description(), ": has no parameter '", name, "'");
  found->layout = layout;
}

Variable Module::register_buffer(const std::string& name, Tensor value) {
  check_new_name(name);
  HEDDLE_CHECK(value.defined(), description(), ": buffer '", name, "' has no value");
  buffers_.push_back({name, Variable(std::move(value)), {}});
  return buffers_.back().variable;
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> child) {
  check_new_name(name);
  HEDDLE_CHECK(child != nullptr, "module '", name, "' is a null pointer");
  children_.emplace_back(name, std::move(child));
}

void Module::check_new_name(const std::string& name) const {
  HEDDLE_CHECK(!name.empty() && name.find_first_of("./") == std::string::npos, "the name '", name,
               "' of a parameter, buffer or module is empty or holds '.' or '/'");
  const auto is_taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& entry) { return entry.name == name; });
  };
  const bool is_child = std::any_of(children_.begin(), children_.end(), [&](const auto& c) { return c.first == name; });
  HEDDLE_CHECK(!is_taken(parameters_) && !is_taken(buffers_) && !is_child, "the name '", name,
               "' is registered twice in one module");
}

}  // namespace heddle::nn
