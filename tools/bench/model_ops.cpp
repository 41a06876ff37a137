#include "tools/bench/model_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

struct Images {
  std::int64_t h = 28, w = 28, c = 1;
};

struct ConvOptions {
  std::int64_t k = 3, stride = 1, padding = 0;
  bool bias_gradient = true;  // a bias in front of a batch norm has none
};

// Collects the ops of a step in the order forward, backward, update; layers are added from the input on.
class Step {
 public:
  explicit Step(std::int64_t batch) : n_(batch) { forward_.push_back({"gather_images", fmt::format("n={}", n_)}); }

  Images conv(const Images& x, std::int64_t o, const ConvOptions& c) {
    const auto out = [&](std::int64_t size) { return (size + 2 * c.padding - c.k) / c.stride + 1; };
    const Images y{out(x.h), out(x.w), o};
    const std::string sizes = fmt::format("n={} h={} w={} c={} o={} k={} stride={} padding={}", n_, x.h, x.w, x.c, o,
                                          c.k, c.stride, c.padding);
    forward_.push_back({"conv2d_forward", sizes + " bias=1 relu=0"});
    backward_.push_back({"conv2d_backward_weight", fmt::format("{} bias={}", sizes, c.bias_gradient ? 1 : 0)});
    // The images need no gradient.
    if (!first_) backward_.push_back({"conv2d_backward_data", sizes + " mask=0"});
    first_ = false;
    parameters_ += padded(o * c.k * c.k * x.c) + padded(o);
    return y;
  }

  // The convolution of a LeNet with its ReLU and the pooling by 2x2 behind it.
  Images conv_pool(const Images& x, std::int64_t o, std::int64_t k, bool average) {
    const std::string sizes = fmt::format("n={} h={} w={} c={} o={} k={} stride=1 padding=0 average={}", n_, x.h, x.w,
                                          x.c, o, k, average ? 1 : 0);
    forward_.push_back({"conv2d_pool_forward", sizes});
    backward_.push_back({"conv2d_pool_backward_weight", fmt::format("{} alone={}", sizes, first_ ? 1 : 0)});
    if (!first_) backward_.push_back({"conv2d_pool_backward_data", sizes + " mask=0"});
    first_ = false;
    parameters_ += padded(o * k * k * x.c) + padded(o);
    return {(x.h - k + 1) / 2, (x.w - k + 1) / 2, o};
  }

  // Batch norm with ReLU; add: at the end of a residual block.
  Images batch_norm(const Images& x, bool add) {
    const std::string sizes = fmt::format("n={} h={} w={} c={} relu=1 add={}", n_, x.h, x.w, x.c, add ? 1 : 0);
    forward_.push_back({"batch_norm_forward", sizes});
    backward_.push_back({"batch_norm_backward", sizes});
    parameters_ += 2 * padded(x.c);
    return x;
  }

  Images max_pool(const Images& x, std::int64_t k, std::int64_t stride, std::int64_t padding) {
    const std::string sizes =
        fmt::format("n={} h={} w={} c={} k={} stride={} padding={} relu=0", n_, x.h, x.w, x.c, k, stride, padding);
    forward_.push_back({"max_pool2d_forward", sizes});
    backward_.push_back({"max_pool2d_backward", sizes});
    const auto out = [&](std::int64_t size) { return (size + 2 * padding - k) / stride + 1; };
    return {out(x.h), out(x.w), x.c};
  }
  Images global_avg_pool(const Images& x) {
    const std::string sizes = fmt::format("n={} h={} w={} c={} out_h=1 out_w=1", n_, x.h, x.w, x.c);
    forward_.push_back({"adaptive_avg_pool2d_forward", sizes});
    backward_.push_back({"adaptive_avg_pool2d_backward", sizes});
    return {1, 1, x.c};
  }

  std::int64_t linear(std::int64_t in, std::int64_t out, bool relu, bool masked) {
    const std::string sizes = fmt::format("n={} in={} out={}", n_, in, out);
    forward_.push_back({"linear_forward", fmt::format("{} bias=1 relu={}", sizes, relu ? 1 : 0)});
    backward_.push_back({"linear_backward_weight", sizes + " bias=1"});
    backward_.push_back({"linear_backward_data", fmt::format("{} mask={}", sizes, masked ? 1 : 0)});
    parameters_ += padded(in * out) + padded(out);
    return out;
  }

  // Loss and update; returns all ops, equal ones counted.
  std::vector<ModelOp> finish() {
    forward_.push_back({"cross_entropy", fmt::format("n={} classes=10", n_)});
    std::vector<ModelOp> ops;
    const auto add = [&](const ModelOp& op) {
      const auto same =
          std::find_if(ops.begin(), ops.end(), [&](const ModelOp& o) { return o.op == op.op && o.sizes == op.sizes; });
      if (same == ops.end()) {
        ops.push_back(op);
      } else {
        ++same->count;
      }
    };
    for (const ModelOp& op : forward_) add(op);
    for (auto op = backward_.rbegin(); op != backward_.rend(); ++op) add(*op);
    add({"sgd_update", fmt::format("n={} momentum=0", parameters_)});
    return ops;
  }

 private:
  // Segments of the flat buffer begin at multiples of 16 bytes.
  static std::int64_t padded(std::int64_t n) { return (n + 3) / 4 * 4; }

  std::int64_t n_, parameters_ = 0;
  bool first_ = true;
  std::vector<ModelOp> forward_, backward_;
};

void lenet(Step& step) {
  const Images x = step.conv_pool(step.conv_pool({}, 6, 5, false), 16, 5, false);
  std::int64_t features = step.linear(x.h * x.w * x.c, 120, true, false);
  features = step.linear(features, 84, true, true);
  step.linear(features, 10, false, true);
}

void lenet_d2l(Step& step) {
  const Images x = step.conv_pool(step.conv_pool({}, 20, 3, true), 50, 5, true);
  const std::int64_t features = step.linear(x.h * x.w * x.c, 128, true, false);
  step.linear(features, 10, false, true);
}

void resnet18_body(Step& step, Images x) {
  const auto conv = [&](const Images& in, std::int64_t o, std::int64_t stride, bool add) {
    return step.batch_norm(step.conv(in, o, {.k = 3, .stride = stride, .padding = 1, .bias_gradient = false}), add);
  };
  for (const std::int64_t channels : {64, 128, 256, 512}) {
    const std::int64_t stride = channels == 64 ? 1 : 2;
    const Images y = conv(conv(x, channels, stride, false), channels, 1, true);
    // The shortcut has no batch norm, so its bias has a gradient.
    if (stride != 1) step.conv(x, channels, {.k = 1, .stride = stride});
    x = conv(conv(y, channels, 1, false), channels, 1, true);
  }
  x = step.global_avg_pool(x);
  step.linear(x.c, 10, false, false);
}

void resnet18(Step& step) {
  const Images x = step.conv({}, 64, {.k = 7, .stride = 2, .padding = 3, .bias_gradient = false});
  resnet18_body(step, step.max_pool(step.batch_norm(x, false), 3, 2, 1));
}

void resnet18_cifar(Step& step) {
  const Images x = step.conv({}, 64, {.k = 3, .padding = 1, .bias_gradient = false});
  resnet18_body(step, step.batch_norm(x, false));
}

struct Preset {
  const char* name;
  void (*build)(Step& step);
};
constexpr Preset kPresets[] = {
    {"lenet", lenet}, {"lenet-d2l", lenet_d2l}, {"resnet18", resnet18}, {"resnet18-cifar", resnet18_cifar}};

}  // namespace

std::vector<std::string> bench_model_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::vector<ModelOp> model_ops(const std::string& model, std::int64_t batch_size) {
  for (const Preset& preset : kPresets) {
    if (model != preset.name) continue;
    Step step(batch_size);
    preset.build(step);
    return step.finish();
  }
  const std::vector<std::string> names = bench_model_names();
  throw UsageError(
      fmt::format("--model is '{}'; expected one of {}{}", model, join_names(names), did_you_mean(model, names)));
}

}  // namespace heddle::tools::bench
