// Batch norm on a GPU where numbers or sizes are hard, with the library's kernels and with the own ones; and the choice
// between them. What every device has in common is in tests/backend/batch_norm_test.cpp.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/kernel_choice.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;

namespace {

// Forward pass with batch statistics, ReLU and addend, and all gradients.
struct Pass {
  BatchNormForward forward;
  BatchNormBackward backward;
};

struct Values {
  Array x, dy, addend, scale, shift;
};

Values values_of(const Shape& shape, double mean, double deviation) {
  const Shape c{shape[-1]};
  Values v{random_array(shape, -1, 1, 1), random_array(shape, -1, 1, 2), random_array(shape, -1, 1, 3),
           random_array(c, 0.5, 2, 4), random_array(c, -1, 1, 5)};
  for (double& x : v.x.values) x = mean + deviation * x;
  return v;
}

Pass make_pass(const Values& v, DType dtype) {
  const Device device = Device::cuda(0);
  const std::int64_t channels = v.x.dim(v.x.shape.rank() - 1);
  const auto vector = [&](double value) { return Tensor::full({channels}, value, DType::f32, device); };
  Pass p;
  p.forward = {.x = tensor_of(v.x, dtype, device),
               .scale = tensor_of(v.scale, DType::f32, device),
               .shift = tensor_of(v.shift, DType::f32, device),
               .addend = tensor_of(v.addend, dtype, device),
               .relu = true,
               .running_mean = vector(0),
               .running_var = vector(1),
               .y = Tensor::empty(v.x.shape, dtype, device),
               .mean = Tensor::empty({channels}, DType::f32, device),
               .inv_std = Tensor::empty({channels}, DType::f32, device)};
  p.forward.mask = backend_for(device).batch_norm_mask(p.forward);
  p.backward = {.x = p.forward.x,
                .dy = tensor_of(v.dy, dtype, device),
                .scale = p.forward.scale,
                .shift = p.forward.shift,
                .mean = p.forward.mean,
                .inv_std = p.forward.inv_std,
                .relu = true,
                .mask = p.forward.mask,
                .dscale = Tensor::empty({channels}, DType::f32, device),
                .dshift = Tensor::empty({channels}, DType::f32, device),
                .dx = Tensor::empty(v.x.shape, dtype, device),
                .daddend = Tensor::empty(v.x.shape, dtype, device)};
  return p;
}

Pass run(const Values& v, DType dtype) {
  Pass p = make_pass(v, dtype);
  backend_for(Device::cuda(0)).batch_norm_forward(p.forward);
  backend_for(Device::cuda(0)).batch_norm_backward(p.backward);
  return p;
}

// All results, to compare bits.
std::vector<double> results_of(const Pass& p) {
  std::vector<double> all;
  for (const Tensor& t : {p.forward.y, p.forward.mean, p.forward.inv_std, p.forward.running_mean, p.forward.running_var,
                          p.forward.mask, p.backward.dx, p.backward.daddend, p.backward.dscale, p.backward.dshift}) {
    const Array values = array_of(t);
    all.insert(all.end(), values.values.begin(), values.values.end());
  }
  return all;
}

constexpr KernelChoice kChoices[] = {KernelChoice::automatic, KernelChoice::vendor, KernelChoice::own};

// Compares a pass with the reference, whose inputs are rounded as the tensors are. Gradients: also compared.
void expect_reference(const Pass& p, double tolerance, bool gradients) {
  const Array one(p.forward.scale.shape(), 1), zero(p.forward.scale.shape(), 0);
  const reference::BatchNormSettings settings{.relu = true};
  const auto f =
      reference::batch_norm_forward(array_of(p.forward.x), array_of(p.forward.scale), array_of(p.forward.shift),
                                    array_of(p.forward.addend), settings, zero, one);
  CHECK(compare(array_of(p.forward.y), f.y, tolerance) == "");
  CHECK(compare(array_of(p.forward.inv_std), f.inv_std, 1e-5) == "");
  CHECK(compare(array_of(p.forward.running_mean), f.running_mean, 1e-6) == "");
  CHECK(compare(array_of(p.forward.running_var), f.running_var, 1e-5) == "");
  if (!gradients) return;
  // Where the ReLU is open follows from y as it was rounded.
  auto rounded = f;
  rounded.y = array_of(p.forward.y);
  const auto g = reference::batch_norm_backward(array_of(p.backward.x), array_of(p.backward.dy),
                                                array_of(p.forward.scale), rounded, settings, Array());
  CHECK(compare(array_of(p.backward.daddend), g.daddend, 1e-6) == "");
  CHECK(compare(array_of(p.backward.dscale), g.dscale, 10 * tolerance) == "");
  CHECK(compare(array_of(p.backward.dshift), g.dshift, 10 * tolerance) == "");
  CHECK(compare(array_of(p.backward.dx), g.dx, 10 * tolerance) == "");
}

}  // namespace

TEST_CASE("batch norm on a GPU agrees with the reference for any number of channels and rows") {
  for (const KernelChoice choice : kChoices) {
    const KernelChoiceGuard guard(choice);
    for (const std::int64_t channels : {1, 3, 5, 64, 512, 513}) {
      for (const std::int64_t rows : {2, 3, 97 * 49}) {
        if (rows * channels > 400'000) continue;
        INFO(name_of(choice) << ", " << rows << " rows of " << channels << " channels");
        expect_reference(run(values_of({rows, channels}, 0.5, 2), DType::f32), 2e-5, true);
        expect_reference(run(values_of({rows, channels}, 0.5, 2), DType::bf16), 8e-3, true);
      }
    }
    expect_reference(run(values_of({97, 7, 7, 64}, 0.5, 2), DType::f32), 2e-5, true);
  }
}

TEST_CASE("batch norm on a GPU of one row gives the shift, and leaves the running variance") {
  for (const KernelChoice choice : kChoices) {
    const KernelChoiceGuard guard(choice);
    for (const std::int64_t channels : {3, 64}) {
      INFO(name_of(choice) << ", " << channels << " channels");
      const Values v = values_of({1, channels}, 3, 1);
      const Pass p = run(v, DType::f32);
      for (std::int64_t c = 0; c < channels; ++c) {
        CHECK(array_of(p.forward.y)[c] ==
              static_cast<double>(std::max(0.f, static_cast<float>(v.shift[c]) + static_cast<float>(v.addend[c]))));
        CHECK(array_of(p.forward.running_var)[c] == 1);
        CHECK(std::abs(array_of(p.backward.dx)[c]) < 1e-4);
      }
    }
  }
}

TEST_CASE("batch norm on a GPU keeps a small variance beside a large mean, and channels apart") {
  for (const KernelChoice choice : kChoices) {
    const KernelChoiceGuard guard(choice);
    for (const std::int64_t channels : {1, 3, 64}) {
      for (const std::int64_t rows : {50, 97 * 49}) {
        INFO(name_of(choice) << ", " << rows << " rows of " << channels << " channels");
        // The spacing of floats at 1e4 is a tenth of the deviation: what x is, is exact, and so is what is taken from
        // it.
        Values v = values_of({rows, channels}, 1e4, 1e-2);
        expect_reference(run(v, DType::f32), choice == KernelChoice::own ? 1e-4 : 1e-3, false);
        // One channel is huge, and one row of it is far out.
        v = values_of({rows, channels}, 0, 1);
        for (std::int64_t r = 0; r < rows; ++r) v.x[r * channels] = 1e15 * (2 + v.x[r * channels]);
        v.x[0] = -1e17;
        expect_reference(run(v, DType::f32), 1e-4, false);
      }
    }
  }
}

TEST_CASE("batch norm on a GPU gives the same bits again") {
  for (const KernelChoice choice : kChoices) {
    const KernelChoiceGuard guard(choice);
    for (const Shape& shape : {Shape{97 * 49, 64}, Shape{3001, 5}, Shape{64, 513}}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        INFO(name_of(choice) << " " << dtype << " " << shape);
        const Values v = values_of(shape, 0.5, 2);
        CHECK(results_of(run(v, dtype)) == results_of(run(v, dtype)));
      }
    }
  }
}

TEST_CASE("two and three parts of a batch on a GPU give what the whole batch gives") {
  const Device device = Device::cuda(0);
  Backend& backend = backend_for(device);
  for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{1500, 1501}, {1, 0, 3000}}) {
    for (const std::int64_t channels : {5, 64}) {
      const std::int64_t numel = batch_norm_exchange_numel(channels), ranks = std::ssize(cuts);
      INFO(ranks << " parts, " << channels << " channels");
      const Values v = values_of({3001, channels}, 3, 0.5);
      const KernelChoiceGuard guard(KernelChoice::own);
      const Pass whole = run(v, DType::f32);
      std::vector<Pass> parts;
      std::int64_t at = 0;
      Tensor statistics = Tensor::empty({ranks, numel}, DType::f64, device), sums = Tensor::empty_like(statistics);
      for (std::size_t r = 0; r < cuts.size(); ++r) {
        Pass p = make_pass(v, DType::f32);
        for (Tensor* t : {&p.forward.x, &p.forward.addend, &p.forward.y, &p.forward.mask, &p.backward.x, &p.backward.dy,
                          &p.backward.mask, &p.backward.dx, &p.backward.daddend}) {
          *t = t->narrow(at, cuts[r]);
        }
        at += cuts[r];
        Tensor own = statistics.narrow(static_cast<std::int64_t>(r), 1).reshape({numel});
        backend.batch_norm_statistics(p.forward.x, own);
        parts.push_back(std::move(p));
      }
      for (std::size_t r = 0; r < parts.size(); ++r) {
        parts[r].forward.exchanged = statistics;
        backend.batch_norm_forward(parts[r].forward);
        Tensor own = sums.narrow(static_cast<std::int64_t>(r), 1).reshape({numel});
        backend.batch_norm_backward_sums(parts[r].backward, own);
      }
      std::vector<double> y, dx, daddend;
      Array dscale(Shape{channels}), dshift(Shape{channels});
      const auto append = [](std::vector<double>& to, const Tensor& from) {
        const Array values = array_of(from);
        to.insert(to.end(), values.values.begin(), values.values.end());
      };
      for (Pass& p : parts) {
        backend.batch_norm_backward_data(p.backward, sums);
        append(y, p.forward.y);
        append(dx, p.backward.dx);
        append(daddend, p.backward.daddend);
        for (std::int64_t c = 0; c < channels; ++c) {
          dscale[c] += array_of(p.backward.dscale)[c];
          dshift[c] += array_of(p.backward.dshift)[c];
        }
        CHECK(compare(array_of(p.forward.running_mean), array_of(whole.forward.running_mean), 1e-6) == "");
        CHECK(compare(array_of(p.forward.running_var), array_of(whole.forward.running_var), 1e-5) == "");
      }
      const Shape shape{3001, channels};
      CHECK(compare(Array(shape, y), array_of(whole.forward.y), 1e-5) == "");
      CHECK(compare(Array(shape, dx), array_of(whole.backward.dx), 1e-4) == "");
      CHECK(compare(Array(shape, daddend), array_of(whole.backward.daddend), 1e-5) == "");
      CHECK(compare(dscale, array_of(whole.backward.dscale), 1e-4) == "");
      CHECK(compare(dshift, array_of(whole.backward.dshift), 1e-4) == "");
    }
  }
}

TEST_CASE("a batch norm runs on the library where channels fill 16 bytes and nothing is added to") {
  Backend& backend = backend_for(Device::cuda(0));
  const auto used = [&](Pass& p, bool forward) {
    take_noted_kernel();
    if (forward) backend.batch_norm_forward(p.forward);
    if (!forward) backend.batch_norm_backward(p.backward);
    return std::string(take_noted_kernel().value().name);
  };
  const auto make = [](std::int64_t channels, DType dtype) { return make_pass(values_of({6, channels}, 0, 1), dtype); };
  Pass f32 = make(24, DType::f32), bf16 = make(16, DType::bf16), odd = make(6, DType::f32), few = make(12, DType::bf16);
  for (Pass* p : {&f32, &bf16}) {
    CHECK(used(*p, true) == "cudnn");
    CHECK(used(*p, false) == "cudnn");
    const KernelChoiceGuard guard(KernelChoice::own);
    CHECK(used(*p, true) == "own");
    CHECK(used(*p, false) == "own");
  }
  for (Pass* p : {&odd, &few}) {
    const KernelChoiceGuard guard(KernelChoice::vendor);
    CHECK(used(*p, true) == "own");
    CHECK(used(*p, false) == "own");
  }
  f32.backward.daddend_mode = WriteMode::add;
  CHECK(used(f32, false) == "own");
  // With running statistics one own kernel does what the library's does.
  f32.forward.batch_statistics = false;
  f32.forward.mean = f32.forward.inv_std = f32.forward.mask = Tensor();
  CHECK(used(f32, true) == "own");
  const Array y = array_of(f32.forward.y);
  const KernelChoiceGuard guard(KernelChoice::vendor);
  CHECK(used(f32, true) == "cudnn_inference");
  CHECK(compare(array_of(f32.forward.y), y, 1e-6) == "");
}
