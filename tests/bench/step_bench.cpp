// One training step by direct calls of the backend, timed op by op: where the time of a step goes, without layers,
// autograd and loader. Not a test. Usage: step_bench [lenet|lenet-d2l|resnet18-convs] [batch] [threads] [steps]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/cpu/dnnl_context.h"
#include "engine/device/caching_allocator.h"

using namespace heddle;

namespace {

using Clock = std::chrono::steady_clock;

struct Op {
  std::string name;
  double flops;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Tensor random_tensor(const Shape& shape, double scale, std::uint64_t seed) {
  Tensor t = Tensor::empty(shape);
  Philox random(seed);
  float* const data = t.mutable_host_data<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i) data[i] = static_cast<float>(random.normal() * scale);
  return t;
}

// A network under construction. Activations and gradients live as long as it, as they do in a step from the caching
// allocator whose blocks come back at the same addresses.
class Step {
 public:
  Step(std::int64_t batch, std::int64_t parameters)
      : batch_(batch), parameters_(random_tensor({parameters}, 0.05, 1)), gradients_(Tensor::zeros({parameters})) {}

  std::vector<Op> ops() const {
    std::vector<Op> all = forward_;
    all.insert(all.end(), backward_.rbegin(), backward_.rend());
    all.insert(all.end(), update_.begin(), update_.end());
    return all;
  }

  Tensor images(std::int64_t height, std::int64_t width) {
    const Tensor pixels = Tensor::full({4096, height, width, 1}, 100, DType::u8);
    const Tensor labels = Tensor::full({4096}, 3, DType::u8);
    Tensor order = Tensor::empty({4096}, DType::i32);
    for (int i = 0; i < 4096; ++i) order.mutable_host_data<std::int32_t>()[i] = (i * 1031) % 4096;
    const Tensor x = Tensor::empty({batch_, height, width, 1});
    labels_ = Tensor::zeros({batch_}, DType::i64);
    const Tensor cursor = Tensor::zeros({cursor_slot::kCount}, DType::i64);
    forward_.push_back({"gather_images", 0, [=, cursor = cursor, x = x, y = labels_]() mutable {
                          cursor.fill_zero();
                          backend().gather_images(pixels, labels, order, cursor, {}, x, y);
                        }});
    return x;
  }

  // first: no gradient for x. mask: x is a ReLU's output.
  Tensor conv(const Tensor& x, std::int64_t out_c, std::int64_t kernel, const Conv2dParams& params, bool relu,
              bool first, bool mask) {
    const std::int64_t out_h = (x.dim(1) + 2 * params.padding_h - kernel) / params.stride_h + 1;
    const std::int64_t out_w = (x.dim(2) + 2 * params.padding_w - kernel) / params.stride_w + 1;
    const Tensor y = Tensor::empty({batch_, out_h, out_w, out_c});
    const auto [w, dw] = parameter({out_c, kernel, kernel, x.dim(3)});
    const auto [b, db] = parameter({out_c});
    const Tensor dy = gradient_of(y), dx = gradient_of(x);
    const double flops = 2.0 * static_cast<double>(y.numel() * kernel * kernel * x.dim(3));
    const std::string name = join_text("conv ", x.dim(3), "->", out_c, " k", kernel);
    forward_.push_back({name + " forward", flops,
                        [=, w = w, b = b, y = y]() mutable { backend().conv2d_forward(x, w, b, params, relu, y); }});
    if (!first) {
      backward_.push_back({name + " backward_data", flops, [=, w = w, dx = dx]() mutable {
                             backend().conv2d_backward_data(dy, w, params, mask ? x : Tensor(), dx, WriteMode::store);
                           }});
    }
    backward_.push_back({name + " backward_weight", flops, [=, dw = dw, db = db]() mutable {
                           backend().conv2d_backward_weight(x, dy, params, dw, &db, WriteMode::store);
                         }});
    return y;
  }

  Tensor linear(const Tensor& x_any, std::int64_t out, bool relu, bool mask) {
    const Tensor x = x_any.reshape({batch_, -1});
    const Tensor y = Tensor::empty({batch_, out});
    const auto [w, dw] = parameter({out, x.dim(1)});
    const auto [b, db] = parameter({out});
    const Tensor dy = gradient_of(y), dx = gradient_of(x_any).reshape({batch_, -1});
    const double flops = 2.0 * static_cast<double>(batch_ * w.numel());
    const std::string name = join_text("linear ", x.dim(1), "->", out);
    forward_.push_back(
        {name + " forward", flops, [=, w = w, b = b, y = y]() mutable { backend().linear_forward(x, w, b, relu, y); }});
    backward_.push_back({name + " backward_data", flops, [=, w = w, dx = dx]() mutable {
                           backend().linear_backward_data(dy, w, mask ? x : Tensor(), dx, WriteMode::store);
                         }});
    backward_.push_back({name + " backward_weight", flops, [=, dw = dw, db = db]() mutable {
                           backend().linear_backward_weight(x, dy, dw, &db, WriteMode::store);
                         }});
    return y;
  }

  // A convolution, its ReLU and a pooling by 2x2 as one op where the backend has one, else as two. first: no gradient
  // for x.
  Tensor conv_pool(const Tensor& x, std::int64_t out_c, std::int64_t kernel, PoolKind kind, bool first) {
    const Conv2dPoolParams params{{}, kind};
    const Tensor probe = Tensor::empty({out_c, kernel, kernel, x.dim(3)});
    FusedConv2dPool* const fused = backend().fused_conv2d_pool(x, probe, params);
    if (fused == nullptr) {
      const bool average = kind == PoolKind::avg;
      const Tensor y = conv(x, out_c, kernel, {}, average, first, false);
      return average ? avg_pool(y) : max_pool_relu(y);
    }
    const std::int64_t out_h = x.dim(1) - kernel + 1, out_w = x.dim(2) - kernel + 1;
    const Tensor y = Tensor::empty({batch_, out_h / 2, out_w / 2, out_c}), code = Tensor::empty(y.shape(), DType::u8);
    const auto [w, dw] = parameter(probe.shape());
    const auto [b, db] = parameter({out_c});
    const Tensor dy = gradient_of(y), dx = gradient_of(x);
    const double flops = 2.0 * static_cast<double>(batch_ * out_h * out_w * w.numel());
    const std::string name = join_text("conv + pool ", x.dim(3), "->", out_c, " k", kernel);
    forward_.push_back({name + " forward", flops,
                        [=, w = w, b = b, y = y, code = code]() mutable { fused->forward(x, w, b, params, y, code); }});
    if (!first) {
      backward_.push_back({name + " backward_data", flops, [=, w = w, dx = dx]() mutable {
                             fused->backward_data(dy, code, w, params, Tensor(), dx, WriteMode::store);
                           }});
    }
    backward_.push_back({name + " backward_weight", flops, [=, dw = dw, db = db]() mutable {
                           fused->backward_weight(x, dy, code, params, dw, &db, WriteMode::store);
                         }});
    return y;
  }

  Tensor max_pool_relu(const Tensor& x) {
    const Shape shape{batch_, x.dim(1) / 2, x.dim(2) / 2, x.dim(3)};
    const Tensor y = Tensor::empty(shape), argmax = Tensor::empty(shape, DType::u8);
    const Tensor dy = gradient_of(y), dx = gradient_of(x);
    forward_.push_back({"max_pool forward", 0, [=, y = y, argmax = argmax]() mutable {
                          backend().max_pool2d_forward(x, {}, true, y, argmax);
                        }});
    backward_.push_back({"max_pool backward", 0, [=, dx = dx]() mutable {
                           backend().max_pool2d_backward(dy, y, argmax, {}, dx, WriteMode::store);
                         }});
    return y;
  }

  // x is a ReLU's output.
  Tensor avg_pool(const Tensor& x) {
    const Tensor y = Tensor::empty({batch_, x.dim(1) / 2, x.dim(2) / 2, x.dim(3)});
    const Tensor dy = gradient_of(y), dx = gradient_of(x);
    forward_.push_back({"avg_pool forward", 0, [=, y = y]() mutable { backend().avg_pool2d_forward(x, {}, y); }});
    backward_.push_back({"avg_pool backward", 0,
                         [=, dx = dx]() mutable { backend().avg_pool2d_backward(dy, {}, x, dx, WriteMode::store); }});
    return y;
  }

  void loss(const Tensor& logits) {
    const Tensor tail = Tensor::zeros({tail_slot::kCount});
    const CrossEntropyResult result{
        .loss = Tensor::empty({}), .dlogits = gradient_of(logits), .stats = tail, .stats_mode = WriteMode::store};
    forward_.push_back({"cross_entropy", 0, [=, labels = labels_, result = result]() mutable {
                          backend().cross_entropy(logits, labels, Tensor(), {}, result);
                        }});
    const UpdateTensors tensors{.weights = parameters_, .gradients = gradients_, .tail = tail};
    const SgdRange range{0, parameters_.numel(), {}};
    update_.push_back(
        {"update", 0, [=, state = std::make_shared<StepState>(Device::cpu()), tensors = tensors]() mutable {
           backend().sgd_update(tensors, {&range, 1}, {.divide_by_weight_sum = true}, *state);
         }});
  }

 private:
  static Backend& backend() { return backend_for(Device::cpu()); }

  std::pair<Tensor, Tensor> parameter(const Shape& shape) {
    const std::int64_t begin = used_;
    used_ += (shape.numel() + 3) / 4 * 4;
    return {parameters_.slice_of_flat(begin, shape), gradients_.slice_of_flat(begin, shape)};
  }
  Tensor gradient_of(const Tensor& x) {
    for (const auto& [value, gradient] : gradient_of_) {
      if (value.same_memory(x)) return gradient;
    }
    gradient_of_.emplace_back(x, random_tensor(x.shape(), 0.01, 2));
    return gradient_of_.back().second;
  }

  std::int64_t batch_, used_ = 0;
  Tensor parameters_, gradients_, labels_;
  std::vector<std::pair<Tensor, Tensor>> gradient_of_;
  std::vector<Op> forward_, backward_, update_;
};

void lenet(Step& step) {
  Tensor x = step.images(28, 28);
  x = step.conv_pool(x, 6, 5, PoolKind::max, true);
  x = step.conv_pool(x, 16, 5, PoolKind::max, false);
  x = step.linear(x, 120, true, false);
  x = step.linear(x, 84, true, true);
  step.loss(step.linear(x, 10, false, true));
}

void lenet_d2l(Step& step) {
  Tensor x = step.images(28, 28);
  x = step.conv_pool(x, 20, 3, PoolKind::avg, true);
  x = step.conv_pool(x, 50, 5, PoolKind::avg, false);
  x = step.linear(x, 128, true, false);
  step.loss(step.linear(x, 10, false, true));
}

// The different convolutions of ResNet-18 on 28x28 images, once each.
void resnet18_convs(Step& step, std::int64_t batch) {
  const auto conv = [&](std::int64_t size, std::int64_t in, std::int64_t out, std::int64_t kernel,
                        std::int64_t stride) {
    const std::int64_t padding = kernel / 2;
    const Tensor x = random_tensor({batch, size, size, in}, 1, 3);
    step.conv(x, out, kernel, {.stride_h = stride, .stride_w = stride, .padding_h = padding, .padding_w = padding},
              false, in == 1, false);
  };
  conv(28, 1, 64, 7, 2);
  conv(28, 1, 64, 3, 1);
  conv(28, 64, 64, 3, 1);
  conv(28, 64, 128, 3, 2);
  conv(28, 64, 128, 1, 2);
  conv(14, 128, 128, 3, 1);
  conv(14, 128, 256, 3, 2);
  conv(14, 128, 256, 1, 2);
  conv(7, 256, 256, 3, 1);
  conv(7, 64, 64, 3, 1);
  conv(4, 128, 128, 3, 1);
  conv(4, 512, 512, 3, 1);
  conv(2, 256, 256, 3, 1);
  conv(1, 512, 512, 3, 1);
}

int run(const std::string& model, std::int64_t batch, int threads, int steps) {
  if (threads > 0) set_num_threads(threads);
  Step step(batch, model == "resnet18-convs" ? 12'000'000 : 150'000);
  if (model == "lenet") {
    lenet(step);
  } else if (model == "lenet-d2l") {
    lenet_d2l(step);
  } else if (model == "resnet18-convs") {
    resnet18_convs(step, batch);
  } else {
    std::fprintf(stderr, "step_bench: unknown model %s; known: lenet, lenet-d2l, resnet18-convs\n", model.c_str());
    return 2;
  }
  std::vector<Op> ops = step.ops();
  std::vector<double> totals;
  for (int i = 0; i < steps + 3; ++i) {
    double total = 0;
    for (Op& op : ops) {
      const auto begin = Clock::now();
      op.run();
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      total += seconds;
      if (i >= 3) op.seconds.push_back(seconds);
    }
    if (i >= 3) totals.push_back(total);
  }
  std::printf("%s, batch %lld, %d threads, %s\n", model.c_str(), static_cast<long long>(batch), num_threads(),
              backend_for(Device::cpu()).description().c_str());
  // The fastest run counts: on a shared machine the median measures the neighbours too.
  std::printf("%-32s %10s %10s\n", "", "fastest us", "median us");
  for (const Op& op : ops) {
    const double fastest = *std::min_element(op.seconds.begin(), op.seconds.end());
    std::printf("%-32s %10.1f %10.1f", op.name.c_str(), fastest * 1e6, median(op.seconds) * 1e6);
    if (op.flops > 0) std::printf(" %8.1f GFLOP/s", op.flops / fastest * 1e-9);
    std::printf("\n");
  }
  std::printf("%-32s %10.1f %10.1f\n", "step", *std::min_element(totals.begin(), totals.end()) * 1e6,
              median(totals) * 1e6);
  for (const std::string& name : cpu::dnnl_implementations()) std::printf("oneDNN implementation: %s\n", name.c_str());
  std::printf("allocator: %llu segments, peak %.1f MiB\n",
              static_cast<unsigned long long>(allocator_for(Device::cpu()).stats().device_allocations),
              static_cast<double>(allocator_for(Device::cpu()).stats().peak_in_use_nbytes) / 1048576.0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "lenet", argc > 2 ? std::atoll(argv[2]) : 256, argc > 3 ? std::atoi(argv[3]) : 0,
               argc > 4 ? std::atoi(argv[4]) : 50);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_bench: %s\n", error.what());
    return 1;
  }
}
