// A small model with dropout, for tests of what ranks do with one.
#pragma once

#include <memory>
#include <string>

#include "engine/nn/dropout.h"
#include "engine/nn/linear.h"
#include "engine/ops/ops.h"

namespace heddle::testing {

struct SmallModelSizes {
  std::int64_t pixels, hidden, classes;
};

// Images of one channel with sizes.pixels pixels; p: of the dropout.
struct SmallModel : nn::Module {
  SmallModel(const SmallModelSizes& sizes, double p) : pixels(sizes.pixels) {
    hidden = register_module("hidden", std::make_shared<nn::Linear>(sizes.pixels, sizes.hidden));
    drop = register_module("drop", std::make_shared<nn::Dropout>(p));
    out = register_module("out", std::make_shared<nn::Linear>(sizes.hidden, sizes.classes));
  }
  using nn::Module::forward;
  Variable forward(const Variable& x) override {
    const Variable h = ops::relu(hidden->forward(ops::reshape(x, {x.dim(0), pixels})));
    return out->forward(drop->forward(h));
  }
  std::string description() const override { return "SmallModel"; }

  std::int64_t pixels;
  std::shared_ptr<nn::Linear> hidden, out;
  std::shared_ptr<nn::Dropout> drop;
};

// The same with a buffer, as running statistics are.
struct SmallModelWithBuffer : SmallModel {
  SmallModelWithBuffer(const SmallModelSizes& sizes, double p) : SmallModel(sizes, p) {
    average = register_buffer("average", Tensor::zeros({3}));
  }

  Variable average;
};

}  // namespace heddle::testing
