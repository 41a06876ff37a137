// Batch norm layers on the ranks of a group: what is averaged, what is synchronised, and how batches are cut for them.
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/nn/batch_norm.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/pooling.h"
#include "engine/nn/sequential.h"
#include "engine/ops/ops.h"
#include "nccl_comm/average_buffers.h"
#include "nccl_comm/batch_cut.h"
#include "tests/nccl_comm/groups.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/relative_distance.h"
#include "tests/support/values.h"

using namespace heddle;
using comm::BatchCut;
using comm::Communicator;

namespace {

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};
using Values = std::vector<float>;
using Sizes = std::vector<std::int64_t>;

Tensor random_images(const Shape& shape, std::uint64_t seed) {
  return testing::tensor_of(testing::random_array(shape, -2, 3, seed), DType::f32);
}

void draw(nn::Module& module, Device device) {
  Philox random(1);
  module.reset_parameters(random);
  module.to(device);
}

// What a batch norm does with some rows of x and of the gradient.
struct Pass {
  Values y, dx, dweight, dbias, mean, var;
};
Pass run_pass(nn::BatchNorm2d& norm, const Tensor& values, const Tensor& dy) {
  Variable x(values, true);
  Variable weight = norm.weight(), bias = norm.bias();
  weight.zero_grad();
  bias.zero_grad();
  const Variable y = norm.forward_with_relu(x);
  backward(y, {}, {.gradient = dy});
  return {y.data().to_vector<float>(),
          x.grad().to_vector<float>(),
          weight.grad().to_vector<float>(),
          bias.grad().to_vector<float>(),
          norm.running_mean().data().to_vector<float>(),
          norm.running_var().data().to_vector<float>()};
}

void append(Values& to, const Values& from) { to.insert(to.end(), from.begin(), from.end()); }
void add(Values& to, const Values& from) {
  to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

}  // namespace

TEST_CASE("running statistics of ranks that trained on their own shares become their mean, everywhere") {
  for (const testing::GroupKind& kind : testing::group_kinds()) {
    if (kind.most_ranks < 2) continue;
    for (const Device first_device : kind.devices) {
      std::vector<Values> means(2), vars(2), own(2);
      testing::run_group(kind, 2, kPatient, [&](Communicator& c) {
        const auto rank = static_cast<std::size_t>(c.rank());
        const Device device = kind.device_of(c.rank(), first_device);
        nn::BatchNorm2d norm(1);
        draw(norm, device);
        const float first = c.rank() == 0 ? 1.f : 5.f;
        norm.forward(Tensor::from_values(Values{first, first + 1, first + 2, first + 3}, {4, 1, 1, 1}).to(device));
        own[rank] = norm.running_mean().data().to_vector<float>();
        comm::average_buffers(norm, c);
        means[rank] = norm.running_mean().data().to_vector<float>();
        vars[rank] = norm.running_var().data().to_vector<float>();
      });
      CAPTURE(kind.name, first_device.to_string());
      CHECK(own[0][0] == Approx(0.25));
      CHECK(own[1][0] == Approx(0.65));
      CHECK(means[0][0] == Approx(0.45));
      CHECK(vars[0][0] == Approx(1.0666667));
      CHECK(means[0] == means[1]);
      CHECK(vars[0] == vars[1]);
    }
  }
}

TEST_CASE("synchronised batch norms do with shares what one does with the whole batch, also without images") {
  for (const testing::GroupKind& kind : testing::group_kinds()) {
    for (const Device device : kind.devices) {
      for (const Sizes& shares : {Sizes{3, 2}, Sizes{4, 0, 1}}) {
        if (static_cast<int>(shares.size()) > kind.most_ranks) continue;
        std::int64_t images = 0;
        for (const std::int64_t share : shares) images += share;
        const Tensor x = random_images({images, 3, 2, 5}, 1).to(device),
                     dy = random_images({images, 3, 2, 5}, 2).to(device);
        nn::BatchNorm2d alone(5);
        draw(alone, device);
        const Pass whole = run_pass(alone, x, dy);
        std::vector<Pass> passes(shares.size());
        testing::run_group(kind, static_cast<int>(shares.size()), kPatient, [&](Communicator& c) {
          const auto rank = static_cast<std::size_t>(c.rank());
          const Device own_device = kind.device_of(c.rank(), device);
          nn::BatchNorm2d norm(5);
          draw(norm, own_device);
          const nn::SynchronisedBatchNorms together(norm, c);
          std::int64_t begin = 0;
          for (std::size_t r = 0; r < rank; ++r) begin += shares[r];
          const auto share = [&](const Tensor& all) { return all.narrow(begin, shares[rank]).to(own_device); };
          passes[rank] = run_pass(norm, share(x), share(dy));
        });
        Pass joined;
        for (const Pass& pass : passes) {
          append(joined.y, pass.y);
          append(joined.dx, pass.dx);
          add(joined.dweight, pass.dweight);
          add(joined.dbias, pass.dbias);
        }
        CAPTURE(kind.name, device.to_string(), shares.size());
        CHECK(testing::relative_distance(joined.y, whole.y) < 1e-6);
        CHECK(testing::relative_distance(joined.dx, whole.dx) < 1e-5);
        CHECK(testing::relative_distance(joined.dweight, whole.dweight) < 1e-5);
        CHECK(testing::relative_distance(joined.dbias, whole.dbias) < 1e-5);
        for (const Pass& pass : passes) {
          CHECK(pass.mean == passes[0].mean);
          CHECK(pass.var == passes[0].var);
          CHECK(testing::relative_distance(pass.mean, whole.mean) < 1e-5);
          CHECK(testing::relative_distance(pass.var, whole.var) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("one value per channel on all ranks together is refused by a synchronised batch norm on a CPU") {
  std::vector<std::string> errors(2);
  testing::run_group(testing::group_kinds().front(), 2, kPatient, [&](Communicator& c) {
    nn::BatchNorm2d norm(2);
    draw(norm, Device::cpu());
    const nn::SynchronisedBatchNorms together(norm, c);
    try {
      norm.forward(Tensor::zeros({c.rank() == 0 ? 1 : 0, 1, 1, 2}));
    } catch (const InvalidArgument& e) {
      errors[static_cast<std::size_t>(c.rank())] = e.what();
    }
  });
  for (const std::string& error : errors) CHECK_THAT(error, Catch::Contains("one value per channel"));
}

TEST_CASE("the passes of a batch are those of shares and pieces") {
  CHECK(comm::pass_sizes(10, {}) == Sizes{10});
  CHECK(comm::pass_sizes(10, {.shares = 3}) == Sizes{4, 3, 3});
  CHECK(comm::pass_sizes(2, {.shares = 3}) == Sizes{1, 1});
  CHECK(comm::pass_sizes(9, {.shares = 2, .pieces = 3}) == Sizes{1, 2, 2, 1, 1, 2});
  CHECK(comm::pass_sizes(3, {.shares = 2, .pieces = 4}) == Sizes{1, 1, 1});
  CHECK(comm::pass_sizes(9, {.shares = 2, .pieces = 3, .synchronised = true}) == Sizes{2, 3, 4});
  CHECK(comm::pass_sizes(2, {.shares = 4, .pieces = 3, .synchronised = true}) == Sizes{2});
}

TEST_CASE("a pass of one image is found in full and last batches, with batch sizes that have none") {
  const BatchCut one{};
  CHECK(comm::has_pass_of_one(64, 65, one));
  CHECK_FALSE(comm::has_pass_of_one(64, 66, one));
  CHECK(comm::has_pass_of_one(1, 10, one));
  const comm::NearestBatchSizes nearest = comm::batch_sizes_without_pass_of_one(64, 65, one);
  CHECK(nearest.below == 63);
  CHECK(nearest.above == 65);
  CHECK_FALSE(comm::has_pass_of_one(8, 16, {.shares = 4}));
  CHECK(comm::has_pass_of_one(7, 14, {.shares = 4}));
  CHECK_FALSE(comm::has_pass_of_one(7, 14, {.shares = 4, .synchronised = true}));
  CHECK(comm::batch_sizes_without_pass_of_one(2, 3, {.shares = 4}).above == 0);
}

TEST_CASE("the batch norm that one image leaves with one value is found by path, and nothing is changed by looking") {
  for (const Device device : testing::test_devices()) {
    const auto norm = std::make_shared<nn::BatchNorm2d>(3), deep = std::make_shared<nn::BatchNorm2d>(4);
    nn::Sequential model({std::make_shared<nn::Conv2d>(1, 3, nn::Conv2dOptions{.kernel_size = 3}), norm,
                          std::make_shared<nn::Conv2d>(3, 4, nn::Conv2dOptions{.kernel_size = 2}), deep},
                         1);
    draw(model, device);
    deep->train(false);
    CHECK(nn::batch_norm_with_one_value(model, {4, 4, 1}) == "'3' " + deep->description());
    CHECK(nn::batch_norm_with_one_value(model, {5, 4, 1}).empty());
    CHECK(norm->is_training());
    CHECK_FALSE(deep->is_training());
    CHECK(norm->running_mean().data().to_vector<float>() == Values(3, 0.f));
    CHECK(nn::batch_norms_of(model).size() == 2);
    nn::Conv2d plain(1, 3, {});
    CHECK(nn::batch_norm_with_one_value(plain, {4, 4, 1}).empty());
  }
}
