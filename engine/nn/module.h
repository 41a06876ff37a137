// The base of all layers and models: named parameters, buffers, children and the training flag.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../autograd/variable.h"
#include "../core/random.h"

namespace heddle::nn {

// A parameter (or a buffer: a state without gradient, such as running statistics) with its path: "features.0.weight".
struct NamedVariable {
  std::string name;
  Variable variable;
};

class Module {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The layer's function. A module with one input overrides the first, one with several the second (each calls the
  // other by default). Throws: InvalidArgument naming layer and shapes.
  virtual Variable forward(const Variable& x);
  virtual Variable forward(std::span<const Variable> inputs);
  Variable operator()(const Variable& x) { return forward(x); }

  // "Conv2d(1, 6, kernel_size=(5,5), ...)" for printing a model.
  virtual std::string description() const = 0;
  // Draws new parameters (the layer's default initialisation is PyTorch's) for this module and its children, in order.
  void reset_parameters(Philox& random);

  // In forward (registration) order, children's names prefixed by the child's name and a dot.
  std::vector<NamedVariable> named_parameters() const;
  std::vector<NamedVariable> named_buffers() const;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> named_children() const { return children_; }
  std::int64_t num_parameters() const;

  // Training or evaluation mode (dropout, batch norm), for children too.
  void train(bool on = true);
  bool is_training() const noexcept { return training_; }
  // Moves parameters and buffers. Invalidates flat buffers made before.
  void to(Device device);

  // A module that can apply max(0, .) to its result itself takes it over here and returns true (Sequential asks when a
  // ReLU follows). May be called once, when the model is built.
  virtual bool absorb_relu() { return false; }
  // The same for a ReLU on its input (max pooling).
  virtual bool absorb_leading_relu() { return false; }

 protected:
  // Draws this module's own parameters (not the children's). The base draws nothing.
  virtual void reset_own_parameters(Philox& random);
  // Adds a leaf that requires a gradient; contents undefined until reset_parameters(). Returns the handle to keep.
  Variable register_parameter(const std::string& name, const Shape& shape);
  Variable register_buffer(const std::string& name, Tensor value);
  template <class M>
  std::shared_ptr<M> register_module(const std::string& name, std::shared_ptr<M> child) {
    add_child(name, child);
    return child;
  }

 private:
  void add_child(const std::string& name, std::shared_ptr<Module> child);
  void check_new_name(const std::string& name) const;

  std::vector<NamedVariable> parameters_;
  std::vector<NamedVariable> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  bool training_ = true;
};

}  // namespace heddle::nn
