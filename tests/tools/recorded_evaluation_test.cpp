// Evaluation on a device that records, and the clock of `heddle bench` on a GPU, on the simulated CUDA.
#include "datasets/synthetic.h"
#include "engine/backend/backend.h"
#include "models/model_list.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/catch.h"
#include "tools/bench/timing.h"
#include "tools/evaluation.h"

namespace heddle::test {
namespace {

const Device kGpu = Device::cuda(0);

data::ResidentDataset resident(const datasets::ImageDataset& part, Device device) {
  return {part.images, part.labels, part.height, part.width, part.channels, part.num_classes, device};
}

std::shared_ptr<nn::Module> make_drawn_model(Device device) {
  std::shared_ptr<nn::Module> model = models::make_model("lenet", {});
  Philox random(1);
  model->reset_parameters(random);
  model->to(device);
  return model;
}

void check_same(const tools::Evaluation& a, const tools::Evaluation& b) {
  CHECK(a.metrics.loss() == b.metrics.loss());
  CHECK(a.metrics.correct() == b.metrics.correct());
  CHECK(a.metrics.samples() == b.metrics.samples());
  for (std::int64_t label = 0; label < 10; ++label) {
    for (std::int64_t prediction = 0; prediction < 10; ++prediction) {
      CHECK(a.confusion.count(label, prediction) == b.confusion.count(label, prediction));
    }
  }
}

}  // namespace

TEST_CASE("an evaluation pass is one launch a batch, and waits and copies only for its results") {
  // Three batches: 500, 500 and 10 images.
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 16, .n_test = 1010});
  const std::shared_ptr<nn::Module> model = make_drawn_model(kGpu);
  const data::ResidentDataset test = resident(data.test, kGpu);
  tools::Evaluator evaluator(*model, test, {});
  // Both sizes are called in the first pass and recorded at the latest in the second.
  const tools::Evaluation first = evaluator.run();
  check_same(evaluator.run(), first);
  cudasim::reset_counters();
  std::vector<cudasim::Counters> before_batch;
  const tools::Evaluation third = evaluator.run([&] {
    before_batch.push_back(cudasim::counters());
    return true;
  });
  const cudasim::Counters used = cudasim::counters();
  check_same(third, first);
  CHECK(used.graph_launches == 3);
  CHECK(used.allocations + used.frees == 0);
  REQUIRE(before_batch.size() == 3);
  // The place in the data (of the loader that counts and of the one that loads), three results, the row and the places
  // in them start anew.
  CHECK(before_batch.front().kernels == 7);
  const cudasim::Counters& last = before_batch.back();
  CHECK(last.graph_launches == 2);
  CHECK(last.host_waits == 0);
  CHECK(last.copies_host_to_device + last.copies_device_to_host + last.copies_device_to_device == 0);
  // Sums, labels, predictions and losses: a copy and a wait each.
  CHECK(used.host_waits == 8);
  CHECK(used.copies_device_to_host == 4);
  CHECK(used.copies_host_to_device == 0);
  // Gather, five layers with two poolings, loss, class, and where the results go.
  const std::int64_t kernels = used.kernels + used.library_calls - before_batch.front().kernels;
  CHECK(kernels <= 3 * (1 + 7 + 1 + 1 + 5));

  const std::shared_ptr<nn::Module> on_cpu = make_drawn_model(Device::cpu());
  const data::ResidentDataset cpu_test = resident(data.test, Device::cpu());
  const tools::Evaluation expected = tools::evaluate(*on_cpu, cpu_test, {});
  CHECK(third.metrics.loss() == Approx(expected.metrics.loss()).epsilon(1e-5));
  CHECK(third.confusion.total() == 1010);
  CHECK(third.metrics.samples() == expected.metrics.samples());
}

TEST_CASE("an evaluation that is stopped leaves the next one whole, and weights may change in between") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 16, .n_test = 510});
  const std::shared_ptr<nn::Module> model = make_drawn_model(kGpu);
  const data::ResidentDataset test = resident(data.test, kGpu);
  tools::Evaluator evaluator(*model, test, {}), called(*model, test, {}, false);
  int batches = 0;
  CHECK_FALSE(evaluator.run([&] { return ++batches < 2; }).finished);
  for (int pass = 0; pass < 3; ++pass) {
    check_same(evaluator.run(), called.run());
    for (const nn::NamedVariable& parameter : model->named_parameters()) {
      Tensor values = parameter.variable.data();
      backend_for(kGpu).unary(UnaryOp::mul_scalar, values, 0.9, 0, values);
    }
  }
}

TEST_CASE("a GPU is timed by its own events, and the host waits once for a group of calls") {
  const Tensor x = Tensor::full({1000}, 1, DType::f32, kGpu);
  Tensor y = Tensor::empty_like(x);
  int calls = 0;
  const auto call = [&] {
    ++calls;
    backend_for(kGpu).unary(UnaryOp::neg, x, 0, 0, y);
  };
  tools::bench::Timer timer(kGpu, 1e6);
  cudasim::reset_counters();
  const tools::bench::Timing cold = timer.cold(call, 4);
  const cudasim::Counters used = cudasim::counters();
  CHECK(cold.repeats == 4);
  CHECK(calls == 4);
  CHECK(used.event_records == 8);
  CHECK(used.host_waits == 4);
  CHECK(used.fills == 4);
}

}  // namespace heddle::test
