// Batch norm against the reference, alone and cut into ranks, and at its edges, on every device.
#include <cmath>
#include <limits>

#include "engine/backend/backend.h"
#include "engine/backend/kernel_choice.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;
using reference::Arrays;
using reference::BatchNormSettings;

namespace {

const Shape kShapes[] = {{4, 1, 1, 1}, {7, 3},     {2, 3, 5, 6},    {3, 2, 2, 16},  {2, 5, 3, 33},   {5, 4, 4, 64},
                         {300, 3},     {40, 7, 1}, {2, 31, 33, 24}, {9, 1, 1, 512}, {1, 3, 3, 2100}, {900, 130}};

struct Form {
  const char* name;
  bool relu, addend, batch_statistics;
};
const Form kForms[] = {{"plain", false, false, true},
                       {"relu", true, false, true},
                       {"add", false, true, true},
                       {"add relu", true, true, true},
                       {"with running statistics", false, false, false},
                       {"relu with running statistics", true, false, false},
                       {"add relu with running statistics", true, true, false}};

BatchNormSettings settings_of(const Form& form) {
  return {.relu = form.relu, .batch_statistics = form.batch_statistics, .eps = 1e-3, .momentum = 0.3};
}

// The channel vectors of bf16 images are f32.
struct Types {
  std::vector<DType> run;
  std::optional<DType> channel;
};
const Types kTypes[] = {{{DType::f32, DType::f64}, {}}, {{DType::bf16}, DType::f32}};

ParityInput channel_input(std::int64_t channels, double low, double high, const Types& types) {
  ParityInput input = random_input({channels}, low, high);
  input.dtype = types.channel;
  return input;
}

// Inputs: x, scale, shift, addend, running mean, running variance.
std::vector<ParityInput> forward_inputs(const Shape& shape, const Form& form, const Types& types) {
  const std::int64_t c = shape[-1];
  return {random_input(shape, -2, 3),         channel_input(c, 0.5, 2, types),
          channel_input(c, -1, 1, types),     form.addend ? random_input(shape) : no_input(),
          channel_input(c, -0.5, 0.5, types), channel_input(c, 0.5, 2, types)};
}

BatchNormForward forward_operands(const std::vector<Tensor>& in, const Form& form) {
  const BatchNormSettings settings = settings_of(form);
  return {.x = in[0],
          .scale = in[1],
          .shift = in[2],
          .addend = in[3],
          .relu = form.relu,
          .eps = settings.eps,
          .batch_statistics = form.batch_statistics,
          .momentum = settings.momentum,
          .running_mean = in[4].clone(),
          .running_var = in[5].clone(),
          .y = Tensor::empty_like(in[0]),
          .mean = Tensor::empty_like(in[1]),
          .inv_std = Tensor::empty_like(in[1])};
}

// x (..,C) cut into these numbers of rows.
std::vector<Tensor> cut(const Tensor& x, const std::vector<std::int64_t>& rows) {
  const std::int64_t channels = x.dim(-1);
  const Tensor flat = x.reshape({x.numel() / channels, channels});
  std::vector<Tensor> parts;
  std::int64_t at = 0;
  for (const std::int64_t n : rows) {
    parts.push_back(flat.narrow(at, n).clone());
    at += n;
  }
  return parts;
}
std::vector<std::int64_t> uneven(std::int64_t rows) { return {rows / 3, 0, rows - rows / 3 - 1, 1}; }

// y, mean, inv_std, and the new running statistics, into out.
void run_forward(const std::vector<Tensor>& in, std::vector<Tensor>& out, const Form& form) {
  BatchNormForward op = forward_operands(in, form);
  op.y = out[0];
  op.mean = out[1];
  op.inv_std = out[2];
  op.running_mean = out[3];
  op.running_var = out[4];
  out[3].copy_from(in[4]);
  out[4].copy_from(in[5]);
  if (form.relu) op.mask = backend_of(out).batch_norm_mask(op);
  backend_of(out).batch_norm_forward(op);
}

ParityRow forward_row(const Shape& shape, const Form& form, const Types& types) {
  const Shape channels{shape[-1]};
  const ParityOutput vector{.shape = channels, .dtype = types.channel};
  return {.name = join_text("batch norm ", form.name, " ", shape),
          .inputs = forward_inputs(shape, form, types),
          .outputs = {{shape}, vector, vector, vector, vector},
          .call = [=](auto& in, auto& out, WriteMode) { run_forward(in, out, form); },
          .reference =
              [=](const Arrays& in) {
                const auto r =
                    reference::batch_norm_forward(in[0], in[1], in[2], in[3], settings_of(form), in[4], in[5]);
                return Arrays{r.y, r.mean, r.inv_std, r.running_mean, r.running_var};
              },
          .tolerance = 4,
          .dtypes = types.run};
}

// Inputs as forward_inputs, then dy and the mask of x.
ParityRow backward_row(const Shape& shape, const Form& form, const Types& types, bool mask) {
  std::vector<ParityInput> inputs = forward_inputs(shape, form, types);
  inputs.push_back(random_input(shape));
  inputs.push_back(mask ? random_input(shape) : no_input());
  const ParityOutput vector{.shape = Shape{shape[-1]}, .dtype = types.channel};
  return {.name = join_text("gradients of batch norm ", form.name, " ", shape, mask ? " masked" : ""),
          .inputs = inputs,
          .outputs = {{shape}, vector, vector, {shape}},
          .call =
              [=](auto& in, auto& out, WriteMode mode) {
                BatchNormForward f = forward_operands(in, form);
                Backend& backend = backend_of(out);
                if (form.relu) f.mask = backend.batch_norm_mask(f);
                backend.batch_norm_forward(f);
                BatchNormBackward op{.x = in[0],
                                     .dy = in[6],
                                     .scale = in[1],
                                     .shift = in[2],
                                     .mean = f.mean,
                                     .inv_std = f.inv_std,
                                     .relu = form.relu,
                                     .mask = f.mask,
                                     .y = form.relu && !f.mask.defined() ? f.y : Tensor(),
                                     .batch_statistics = form.batch_statistics,
                                     .dscale = out[1],
                                     .dshift = out[2],
                                     .dscale_mode = mode,
                                     .dshift_mode = mode,
                                     .dx = out[0],
                                     .dx_mode = mode,
                                     .x_relu_mask = in[7],
                                     .daddend = out[3],
                                     .daddend_mode = mode};
                backend.batch_norm_backward(op);
              },
          .reference =
              [=](const Arrays& in) {
                const auto s = settings_of(form);
                const auto f = reference::batch_norm_forward(in[0], in[1], in[2], in[3], s, in[4], in[5]);
                const auto g = reference::batch_norm_backward(in[0], in[6], in[1], f, s, in[7]);
                return Arrays{g.dx, g.dscale, g.dshift, g.daddend};
              },
          .write_modes = true,
          .tolerance = 40,
          .dtypes = types.run};
}

Array array(const Tensor& x) { return array_of(x); }

// The whole of a batch norm on four ranks, one of which has no rows and one a single one.
struct RanksResult {
  std::vector<double> y, dx, daddend, dscale, dshift;
  Array running_mean, running_var;
};
void append(std::vector<double>& to, const Tensor& from) {
  for (const double v : array(from).values) to.push_back(v);
}

RanksResult run_ranks(const std::vector<Tensor>& in, const Form& form, Device device) {
  Backend& backend = backend_for(device);
  const std::int64_t channels = in[0].dim(-1), numel = batch_norm_exchange_numel(channels);
  const std::vector<std::int64_t> rows = uneven(in[0].numel() / channels);
  const auto n = static_cast<std::int64_t>(rows.size());
  const std::vector<Tensor> x = cut(in[0], rows), dy = cut(in[6], rows);
  const std::vector<Tensor> addend = form.addend ? cut(in[3], rows) : std::vector<Tensor>(rows.size());
  Tensor statistics = Tensor::empty({n, numel}, DType::f64, device), sums = Tensor::empty_like(statistics);
  std::vector<BatchNormForward> forward;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    Tensor own = statistics.narrow(static_cast<std::int64_t>(r), 1).reshape({numel});
    backend.batch_norm_statistics(x[r], own);
    forward.push_back(forward_operands({x[r], in[1], in[2], addend[r], in[4], in[5]}, form));
  }
  RanksResult result;
  std::vector<BatchNormBackward> backward;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    BatchNormForward& f = forward[r];
    f.exchanged = statistics;
    if (form.relu) f.mask = backend.batch_norm_mask(f);
    backend.batch_norm_forward(f);
    append(result.y, f.y);
    // Every rank has the same bits.
    CHECK(array(f.running_mean).values == array(forward[0].running_mean).values);
    CHECK(array(f.running_var).values == array(forward[0].running_var).values);
    CHECK(array(f.inv_std).values == array(forward[0].inv_std).values);
    backward.push_back({.x = x[r],
                        .dy = dy[r],
                        .scale = in[1],
                        .shift = in[2],
                        .mean = f.mean,
                        .inv_std = f.inv_std,
                        .relu = form.relu,
                        .mask = f.mask,
                        .y = form.relu && !f.mask.defined() ? f.y : Tensor(),
                        .dscale = Tensor::empty_like(in[1]),
                        .dshift = Tensor::empty_like(in[1]),
                        .dx = Tensor::empty_like(x[r]),
                        .daddend = Tensor::empty_like(x[r])});
    Tensor own = sums.narrow(static_cast<std::int64_t>(r), 1).reshape({numel});
    backend.batch_norm_backward_sums(backward.back(), own);
  }
  result.dscale.assign(static_cast<std::size_t>(channels), 0);
  result.dshift = result.dscale;
  for (BatchNormBackward& op : backward) {
    backend.batch_norm_backward_data(op, sums);
    append(result.dx, op.dx);
    append(result.daddend, op.daddend);
    for (std::size_t c = 0; c < result.dscale.size(); ++c) {
      result.dscale[c] += array(op.dscale).values[c];
      result.dshift[c] += array(op.dshift).values[c];
    }
  }
  result.running_mean = array(forward[0].running_mean);
  result.running_var = array(forward[0].running_var);
  return result;
}

std::string differs(const std::vector<double>& value, const Array& expected, double tolerance) {
  const auto n = static_cast<std::int64_t>(value.size());
  return compare(Array({n}, value), Array({n}, expected.values), tolerance);
}

}  // namespace

TEST_CASE("batch norm agrees with the reference, running statistics too") {
  for (const Shape& shape : kShapes) {
    for (const Form& form : kForms) {
      for (const Types& types : kTypes) expect_parity_everywhere(forward_row(shape, form, types));
    }
  }
}

// What is exchanged loses nothing: values of rounding size stay on their side of a ReLU.
TEST_CASE("a synchronised batch norm whose other ranks have no rows gives the bits of one that is not synchronised") {
  const KernelChoiceGuard guard(KernelChoice::own);
  const Form form{"relu", true, false, true};
  for (const Device device : test_devices()) {
    for (const Shape& shape : {Shape{7, 3}, Shape{9, 1, 1, 512}, Shape{40, 5, 5, 24}}) {
      INFO(device.to_string() << " " << shape);
      const std::int64_t numel = batch_norm_exchange_numel(shape[-1]);
      std::vector<Tensor> in{tensor_of(random_array(shape, 90, 110, 1), DType::f32, device)};
      for (std::uint64_t seed = 2; seed < 4; ++seed) {
        in.push_back(tensor_of(random_array({shape[-1]}, 0.5, 2, seed), DType::f32, device));
      }
      in.emplace_back();
      for (std::uint64_t seed = 4; seed < 6; ++seed) {
        in.push_back(tensor_of(random_array({shape[-1]}, 0.5, 2, seed), DType::f32, device));
      }
      const Tensor dy = tensor_of(random_array(shape, -1, 1, 6), DType::f32, device);
      std::vector<std::vector<float>> results;
      for (const bool synchronised : {false, true}) {
        Backend& backend = backend_for(device);
        BatchNormForward f = forward_operands(in, form);
        Tensor parts = Tensor::zeros({3, numel}, DType::f64, device);
        Tensor own = parts.narrow(1, 1).reshape({numel});
        if (synchronised) {
          backend.batch_norm_statistics(f.x, own);
          f.exchanged = parts;
        }
        f.mask = backend.batch_norm_mask(f);
        backend.batch_norm_forward(f);
        BatchNormBackward b{.x = f.x,
                            .dy = dy,
                            .scale = f.scale,
                            .shift = f.shift,
                            .mean = f.mean,
                            .inv_std = f.inv_std,
                            .relu = true,
                            .mask = f.mask,
                            .dscale = Tensor::empty_like(f.scale),
                            .dshift = Tensor::empty_like(f.scale),
                            .dx = Tensor::empty_like(f.x)};
        if (synchronised) {
          backend.batch_norm_backward_sums(b, own);
          backend.batch_norm_backward_data(b, parts);
        } else {
          backend.batch_norm_backward(b);
        }
        for (const Tensor& t : {f.y, f.mean, f.inv_std, f.running_mean, f.running_var, b.dx, b.dscale, b.dshift}) {
          results.push_back(t.to_vector<float>());
        }
      }
      for (std::size_t i = 0; i < results.size() / 2; ++i) {
        INFO("result " << i);
        CHECK(results[i] == results[i + results.size() / 2]);
      }
    }
  }
}

TEST_CASE("the gradients of batch norm agree with the reference") {
  for (const Shape& shape : kShapes) {
    for (const Form& form : kForms) {
      for (const bool mask : {false, true}) {
        for (const Types& types : kTypes) expect_parity_everywhere(backward_row(shape, form, types, mask));
      }
    }
  }
}

TEST_CASE("a batch cut into ranks gives what the whole batch gives, with an empty rank and one of one row") {
  for (const Device device : test_devices()) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      if (!holds(device, dtype)) continue;
      for (const Shape& shape : {Shape{7, 3}, Shape{3, 5, 4, 16}, Shape{2, 31, 33, 24}, Shape{900, 130}}) {
        for (const Form& form : {kForms[0], kForms[1], kForms[3]}) {
          INFO(device << " " << dtype << " " << shape << " " << form.name);
          const DType channel = dtype == DType::f64 ? DType::f64 : DType::f32;
          const Shape c{shape[-1]};
          std::vector<Tensor> in;
          const auto add = [&](const Shape& s, double low, double high, DType t) {
            in.push_back(tensor_of(random_array(s, low, high, in.size() + 1), t, device));
          };
          add(shape, -2, 3, dtype);
          add(c, 0.5, 2, channel);
          add(c, -1, 1, channel);
          add(shape, -1, 1, dtype);
          add(c, -0.5, 0.5, channel);
          add(c, 0.5, 2, channel);
          add(shape, -1, 1, dtype);
          const RanksResult result = run_ranks(in, form, device);
          const auto s = settings_of(form);
          const Array addend = form.addend ? array(in[3]) : Array();
          const auto f = reference::batch_norm_forward(array(in[0]), array(in[1]), array(in[2]), addend, s,
                                                       array(in[4]), array(in[5]));
          const auto g = reference::batch_norm_backward(array(in[0]), array(in[6]), array(in[1]), f, s, Array());
          const double own = tolerance_of(dtype), wide = tolerance_of(channel);
          CHECK(differs(result.y, f.y, 4 * own) == "");
          CHECK(differs(result.running_mean.values, f.running_mean, 4 * wide) == "");
          CHECK(differs(result.running_var.values, f.running_var, 4 * wide) == "");
          CHECK(differs(result.dx, g.dx, 40 * own) == "");
          CHECK(differs(result.daddend, g.daddend, own) == "");
          CHECK(differs(result.dscale, g.dscale, 40 * wide) == "");
          CHECK(differs(result.dshift, g.dshift, 40 * wide) == "");
        }
      }
    }
  }
}

TEST_CASE("a mean far from 0 with a small variance is normalised right") {
  for (const Device device : test_devices()) {
    // Halves around 4096: exact in f32, but their squares are not.
    const std::int64_t rows = 5000;
    Array x({rows, 3});
    for (std::int64_t i = 0; i < x.numel(); ++i)
      x[i] = 4096.0 * static_cast<double>(1 + i % 3) + 0.5 * static_cast<double>(i % 7);
    const Array one({3}, 1), zero({3}, 0);
    const auto expected = reference::batch_norm_forward(x, one, zero, Array(), {}, zero, one);
    const Form form{"plain", false, false, true};
    BatchNormForward op = forward_operands(
        {tensor_of(x, DType::f32, device), tensor_of(one, DType::f32, device), tensor_of(zero, DType::f32, device),
         Tensor(), tensor_of(zero, DType::f32, device), tensor_of(one, DType::f32, device)},
        form);
    op.eps = 1e-5;
    op.momentum = 0.1;
    backend_for(device).batch_norm_forward(op);
    INFO(device);
    CHECK(compare(array(op.inv_std), expected.inv_std, 1e-5) == "");
    CHECK(compare(array(op.running_var), expected.running_var, 1e-5) == "");
    // The saved mean is an f32: half a unit in its last place is 2.4e-4 at 4096, 4.9e-4 at 12288.
    CHECK(compare(array(op.y), expected.y, 1e-3) == "");
  }
}

TEST_CASE("running statistics never take in what is not finite") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const Device device : test_devices()) {
    INFO(device);
    const auto run = [&](const Array& x) {
      const std::int64_t c = x.dim(1);
      const Array one({c}, 1), half({c}, 0.5), quarter({c}, 0.25);
      const Form form{"plain", false, false, true};
      BatchNormForward op = forward_operands(
          {tensor_of(x, DType::f32, device), tensor_of(one, DType::f32, device), tensor_of(one, DType::f32, device),
           Tensor(), tensor_of(half, DType::f32, device), tensor_of(quarter, DType::f32, device)},
          form);
      op.momentum = 0.5;
      backend_for(device).batch_norm_forward(op);
      return std::pair(array(op.running_mean).values, array(op.running_var).values);
    };
    using Values = std::pair<std::vector<double>, std::vector<double>>;
    // The first channel is sound: mean 2, unbiased variance 2.
    CHECK(run(Array({2, 3}, {1, nan, inf, 3, 1, 1})) == Values{{1.25, 0.5, 0.5}, {1.125, 0.25, 0.25}});
    CHECK(run(Array(Shape{0, 2})) == Values{{0.5, 0.5}, {0.25, 0.25}});
    CHECK(run(Array({1, 1}, std::vector<double>{3})) == Values{{1.75}, {0.25}});
  }
}
