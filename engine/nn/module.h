// The base of all layers and models: named parameters, buffers, children and the training flag.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../autograd/variable.h"
#include "../backend/op_params.h"
#include "../core/random.h"

namespace heddle::nn {

// What the dimensions of a parameter mean, for the exchange of weights with other programs.
struct ParameterLayout {
  enum class Kind : std::uint8_t {
    plain,              // as anywhere else
    conv_weight,        // (O,KH,KW,I)
    flattened_columns,  // (out, H*W*channels): the columns are a feature map (H,W,channels), flattened
  };
  Kind kind = Kind::plain;
  std::int64_t channels = 0;  // of flattened_columns
  friend bool operator==(const ParameterLayout&, const ParameterLayout&) = default;
};

// A parameter (or a buffer: a state without gradient, such as running statistics) with its path: "features.0.weight".
struct NamedVariable {
  std::string name;
  Variable variable;
  ParameterLayout layout;
};

// What is known about the values between two layers when a model is built, before any image was seen.
struct FeatureMap {
  std::int64_t channels = 0;  // size of the last dimension; of the map before it was flattened. 0: not known
  bool flattened = false;     // (N, H*W*channels) instead of (N,H,W,channels)
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

  // Modules with one op for max(0, forward(x)) say so, and Sequential calls forward_with_relu() where a ReLU follows.
  virtual bool can_fuse_relu() const { return false; }
  virtual Variable forward_with_relu(const Variable& x);
  // The same for forward(max(0, x)) and a ReLU in front (max pooling).
  virtual bool can_fuse_leading_relu() const { return false; }
  virtual Variable forward_after_relu(const Variable& x);
  // Modules with one op for pool(max(0, forward(x))) say for which poolings, and Sequential calls
  // forward_with_relu_and_pool() where a ReLU and such a pooling follow. A pooling layer says what it is.
  virtual bool can_fuse_relu_and_pool(const Pooling2d&) const { return false; }
  virtual Variable forward_with_relu_and_pool(const Variable& x, const Pooling2d& pooling);
  virtual std::optional<Pooling2d> as_pooling() const { return std::nullopt; }

  // Tells what comes out for what goes in, and lets a layer learn what its input is (Linear: the channels of the map
  // that was flattened). Sequential calls it when it is built. The base returns "not known": a module of your own that
  // stands before a Flatten overrides it. Throws: InvalidArgument naming the layer if `input` does not fit.
  virtual FeatureMap trace(const FeatureMap& input);

  // The modules' own random streams (dropout) with the modules' paths, for checkpoints.
  std::vector<std::pair<std::string, RandomStream*>> named_random_streams();

 protected:
  // Draws this module's own parameters (not the children's). The base draws nothing.
  virtual void reset_own_parameters(Philox& random);
  // Adds a leaf that requires a gradient; contents undefined until reset_parameters(). Returns the handle to keep.
  // Throws: InvalidArgument if the name is taken, empty, or holds '.' or '/'.
  Variable register_parameter(const std::string& name, const Shape& shape, const ParameterLayout& layout = {});
  void set_parameter_layout(const std::string& name, const ParameterLayout& layout);
  // This module's random stream, if it has one.
  virtual RandomStream* own_random_stream() noexcept { return nullptr; }
  Variable register_buffer(const std::string& name, Tensor value);
  template <class M>
  std::shared_ptr<M> register_module(const std::string& name, std::shared_ptr<M> child) {
    add_child(name, child);
    return child;
  }

 private:
  void add_child(const std::string& name, std::shared_ptr<Module> child);
  void check_new_name(const std::string& name) const;
  template <class Visit>
  void visit_modules(const std::string& prefix, const Visit& visit) const;

  std::vector<NamedVariable> parameters_;
  std::vector<NamedVariable> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  bool training_ = true;
};

}  // namespace heddle::nn
