// How many kernels a batch norm takes on the simulated GPU, and which memory they name.
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/kernel_choice.h"
#include "tests/support/catch.h"
#include "tests/support/launch_list.h"

using namespace heddle;

namespace {

const Device kGpu = Device::cuda(0);

Tensor numbers(const Shape& shape, double value = 1) { return Tensor::full(shape, value, DType::f32, kGpu); }

BatchNormForward forward(const Shape& shape) {
  const Shape c{shape[-1]};
  BatchNormForward op{.x = numbers(shape),
                      .scale = numbers(c),
                      .shift = numbers(c),
                      .addend = numbers(shape),
                      .relu = true,
                      .running_mean = numbers(c),
                      .running_var = numbers(c),
                      .y = numbers(shape),
                      .mean = numbers(c),
                      .inv_std = numbers(c)};
  op.mask = backend_for(kGpu).batch_norm_mask(op);
  return op;
}
BatchNormBackward backward(const BatchNormForward& op) {
  return {.x = op.x,
          .dy = numbers(op.x.shape()),
          .scale = op.scale,
          .shift = op.shift,
          .mean = op.mean,
          .inv_std = op.inv_std,
          .relu = true,
          .mask = op.mask,
          .dscale = numbers(op.scale.shape()),
          .dshift = numbers(op.scale.shape()),
          .dx = numbers(op.x.shape()),
          .daddend = numbers(op.x.shape())};
}

template <class Call>
std::vector<testing::Launch> launches_of(Call&& call) {
  testing::start_launch_list();
  call(backend_for(kGpu));
  return testing::end_launch_list();
}

}  // namespace

TEST_CASE("a batch norm is one launch each way with the library, one or two with the own kernels") {
  for (const Shape& shape : {Shape{256, 1, 1, 512}, Shape{16, 28, 28, 64}, Shape{16, 28, 28, 6}}) {
    BatchNormForward f = forward(shape);
    BatchNormBackward b = backward(f);
    const bool packed = shape[-1] % 4 == 0, small = f.x.numel() / shape[-1] <= 256;
    INFO(shape);
    for (const KernelChoice choice : {KernelChoice::automatic, KernelChoice::own}) {
      const KernelChoiceGuard guard(choice);
      const bool library = packed && choice == KernelChoice::automatic;
      const std::size_t expected = library || small ? 1 : 2;
      CHECK(launches_of([&](Backend& backend) { backend.batch_norm_forward(f); }).size() == expected);
      CHECK(launches_of([&](Backend& backend) { backend.batch_norm_backward(b); }).size() == expected);
    }
  }
}

TEST_CASE("each half of a synchronised batch norm, and inference, is one launch") {
  for (const std::int64_t channels : {6, 64}) {
    BatchNormForward f = forward({16, 28, 28, channels});
    BatchNormBackward b = backward(f);
    Tensor exchanged = Tensor::zeros({2, batch_norm_exchange_numel(channels)}, DType::f64, kGpu);
    Tensor own = exchanged.narrow(1, 1).reshape({batch_norm_exchange_numel(channels)});
    INFO(channels << " channels");
    CHECK(launches_of([&](Backend& backend) { backend.batch_norm_statistics(f.x, own); }).size() == 1);
    CHECK(launches_of([&](Backend& backend) { backend.batch_norm_backward_sums(b, own); }).size() == 1);
    CHECK(launches_of([&](Backend& backend) { backend.batch_norm_backward_data(b, exchanged); }).size() == 1);
    f.exchanged = exchanged;
    CHECK(launches_of([&](Backend& backend) { backend.batch_norm_forward(f); }).size() == 1);
    f.batch_statistics = false;
    CHECK(launches_of([&](Backend& backend) { backend.batch_norm_forward(f); }).size() == 1);
  }
}

TEST_CASE("the own kernels of a large batch norm read x twice and write each result once") {
  const KernelChoiceGuard guard(KernelChoice::own);
  BatchNormForward f = forward({16, 28, 28, 64});
  const auto nbytes = static_cast<std::int64_t>(f.x.nbytes());
  const auto list = launches_of([&](Backend& backend) { backend.batch_norm_forward(f); });
  REQUIRE(list.size() == 2);
  std::int64_t read = 0, written = 0;
  for (const testing::Launch& launch : list) {
    read += launch.read_nbytes;
    written += launch.written_nbytes;
  }
  // x twice and the addend; y, and a bit of mask for each element; beside it channel vectors and sums of parts.
  CHECK(read >= 3 * nbytes);
  CHECK(read <= 3 * nbytes + nbytes / 10);
  CHECK(written >= nbytes + nbytes / 32);
  CHECK(written <= nbytes + nbytes / 10);
}

TEST_CASE("hashes of the tensors of a replica are one launch") {
  const std::vector<Tensor> tensors(100, numbers({1000}));
  Tensor y = Tensor::empty({100}, DType::i64, kGpu);
  CHECK(launches_of([&](Backend& backend) { backend.hash(tensors, y); }).size() == 1);
}
