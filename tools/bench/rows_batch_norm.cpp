// Batch norm. The backward passes read what the forward pass left in the backend's own form, so a call makes its
// forward pass once for each set of operands, before the first time it counts.
#include <map>
#include <memory>
#include <mutex>

#include "reference/reference.h"
#include "reference/values.h"
#include "tools/bench/op_row.h"

namespace heddle::tools::bench {
namespace {

using Tensors = std::vector<Tensor>;

struct Norm {
  Shape x, channels;
  bool relu = false, add = false;
  reference::BatchNormSettings settings;
};

Norm norm_of(const char* op, const Sizes& s) {
  require_sizes(s["n"] > 0 && s["h"] > 0 && s["w"] > 0 && s["c"] > 0, op, s, "all sizes must be above 0");
  require_sizes(s["n"] * s["h"] * s["w"] > 1, op, s, "one value of a channel has no variance");
  Norm n{.x = {s["n"], s["h"], s["w"], s["c"]},
         .channels = {s["c"]},
         .relu = s["relu"] != 0,
         .add = s["add"] != 0,
         .settings = {}};
  require_sizes(n.x.numel() <= kMaxNumel, op, s, "too large");
  n.settings.relu = n.relu;
  return n;
}

constexpr int kChannels = 3;  // the dimension of the images that parts are cut along

// x, scale, shift, addend, running mean and variance.
std::vector<Input> inputs_of(const Norm& n, DType dtype) {
  const auto channel = [&](double low, double high) {
    return Input{.shape = n.channels, .dtype = DType::f32, .low = low, .high = high, .cut = 0};
  };
  return {{n.x, dtype, -1, 1, kChannels},
          channel(0.5, 2),
          channel(-1, 1),
          {.shape = n.x, .dtype = dtype, .cut = kChannels, .undefined = !n.add},
          channel(-0.5, 0.5),
          channel(0.5, 2)};
}

BatchNormForward operands(const Norm& n, const Tensors& in) {
  return {.x = in[0],
          .scale = in[1],
          .shift = in[2],
          .addend = in[3],
          .relu = n.relu,
          .eps = n.settings.eps,
          .batch_statistics = n.settings.batch_statistics,
          .momentum = n.settings.momentum,
          .running_mean = in[4],
          .running_var = in[5]};
}

reference::BatchNorm expected(const Norm& n, const Arrays& in) {
  return reference::batch_norm_forward(in[0], in[1], in[2], in[3], n.settings, in[4], in[5]);
}

double nbytes_of_images(const Norm& n, DType dtype, int times) {
  return times * static_cast<double>(n.x.numel()) * static_cast<double>(size_of(dtype));
}

Case batch_norm_forward(const Sizes& s, DType dtype) {
  const Norm n = norm_of("batch_norm_forward", s);
  const Output channel{.shape = n.channels, .dtype = DType::f32, .cut = 0};
  return {.inputs = inputs_of(n, dtype),
          .outputs = {{n.x, dtype, kChannels}, channel, channel},
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                BatchNormForward op = operands(n, in);
                op.running_mean = op.running_var = Tensor();
                op.y = out[0];
                op.mean = out[1];
                op.inv_std = out[2];
                if (n.relu) op.mask = b.batch_norm_mask(op);
                b.batch_norm_forward(op);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            reference::BatchNorm r = expected(n, in);
            return {std::move(r.y), std::move(r.mean), std::move(r.inv_std)};
          },
          // x for the statistics, and again for y.
          .nbytes = nbytes_of_images(n, dtype, n.add ? 4 : 3),
          .terms = static_cast<double>(n.x.numel() / n.x[3])};
}

Case batch_norm_inference(const Sizes& s, DType dtype) {
  Norm n = norm_of("batch_norm_inference", s);
  n.settings.batch_statistics = false;
  return {.inputs = inputs_of(n, dtype),
          .outputs = {{n.x, dtype, kChannels}},
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                BatchNormForward op = operands(n, in);
                op.y = out[0];
                b.batch_norm_forward(op);
              },
          .reference = [=](const Arrays& in) -> Arrays { return {expected(n, in).y}; }};
}

// Forward passes of a case by the address of x.
class ForwardPasses {
 public:
  const BatchNormForward& get(const Norm& n, Backend& b, const Tensors& in) {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = passes_.try_emplace(in[0].raw_data());
    if (is_new) {
      BatchNormForward& op = place->second = operands(n, in);
      op.running_mean = op.running_var = Tensor();
      op.y = Tensor::empty_like(in[0]);
      op.mean = Tensor::empty_like(in[1]);
      op.inv_std = Tensor::empty_like(in[1]);
      if (n.relu) op.mask = b.batch_norm_mask(op);
      b.batch_norm_forward(op);
    }
    return place->second;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, BatchNormForward> passes_;
};

Case batch_norm_backward(const Sizes& s, DType dtype) {
  const Norm n = norm_of("batch_norm_backward", s);
  std::vector<Input> inputs = inputs_of(n, dtype);
  // Far from where the ReLU opens, as rounding decides there.
  Array x = reference::random_array(n.x, -1, 1, 11);
  for (double& v : x.values) v = v < 0 ? v - 0.5 : v + 0.5;
  inputs[0].values = std::move(x);
  for (Input* const small : {&inputs[2], &inputs[3]}) {
    small->low = -0.1;
    small->high = 0.1;
  }
  inputs.push_back({n.x, dtype, -1, 1, kChannels});
  std::vector<Output> outputs{{n.x, dtype, kChannels},
                              {.shape = n.channels, .dtype = DType::f32, .cut = 0},
                              {.shape = n.channels, .dtype = DType::f32, .cut = 0}};
  if (n.add) outputs.push_back({n.x, dtype, kChannels});
  const auto passes = std::make_shared<ForwardPasses>();
  return {.inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                const BatchNormForward& f = passes->get(n, b, in);
                BatchNormBackward op{.x = in[0],
                                     .dy = in[6],
                                     .scale = in[1],
                                     .shift = in[2],
                                     .mean = f.mean,
                                     .inv_std = f.inv_std,
                                     .relu = n.relu,
                                     .mask = f.mask,
                                     .y = n.relu && !f.mask.defined() ? f.y : Tensor(),
                                     .dscale = out[1],
                                     .dshift = out[2],
                                     .dx = out[0]};
                if (n.add) op.daddend = out[3];
                b.batch_norm_backward(op);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            reference::BatchNormGradients g =
                reference::batch_norm_backward(in[0], in[6], in[1], expected(n, in), n.settings, Array());
            Arrays all{std::move(g.dx), std::move(g.dscale), std::move(g.dshift)};
            if (n.add) all.push_back(std::move(g.daddend));
            return all;
          },
          // x and dy for the sums, and again for dx.
          .nbytes = nbytes_of_images(n, dtype, n.add ? 6 : 5),
          .terms = static_cast<double>(n.x.numel() / n.x[3])};
}

}  // namespace

void add_batch_norm_rows(std::vector<OpRow>& rows) {
  const Sizes sizes{{"n", 256}, {"h", 14}, {"w", 14}, {"c", 64}, {"relu", 1}, {"add", 0}};
  rows.push_back({"batch_norm_forward",
                  "normalised by the batch's statistics; then ReLU, of the sum with an addend if asked", sizes,
                  batch_norm_forward});
  rows.push_back({"batch_norm_inference", "the same by running statistics", sizes, batch_norm_inference});
  rows.push_back({"batch_norm_backward", "gradients of x, scale, shift and the addend", sizes, batch_norm_backward});
}

}  // namespace heddle::tools::bench
