// What two ranks with a GPU each exchange in a training step of the ResNets at full size, on the simulated NCCL, which
// computes nothing here.
#include <chrono>
#include <functional>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/nn/parameter_buffer.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "engine/step/step_graph.h"
#include "models/model_list.h"
#include "nccl_comm/data_parallel.h"
#include "nccl_comm/nccl_communicator.h"
#include "nccl_comm/rank_threads.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/catch.h"

namespace heddle::test {
namespace {

constexpr int kRanks = 2, kSteps = 3;
constexpr std::int64_t kBatch = 128;

struct Exchange {
  cudasim::Counters used;
  std::vector<cudasim::OpRecord> trace;
};

// Recorded steps of both ranks, seen while they stand still.
Exchange exchange_of(const char* model_name, DType reduce_dtype) {
  Exchange result;
  const comm::CommunicatorOptions patient{.timeout = std::chrono::seconds(60)};
  comm::run_rank_threads(
      comm::make_nccl_group({Device::cuda(0), Device::cuda(1)}, patient), [&](comm::Communicator& c) {
        const Device device = Device::cuda(c.rank());
        const auto model = models::make_model(model_name, {});
        model->to(device);
        nn::ParameterBuffer parameters(*model);
        comm::DataParallel parallel(*model, parameters, c, {.reduce_dtype = reduce_dtype});
        optim::Sgd sgd(parameters, 0.1, SgdParams{.momentum = 0.9});
        const Tensor images = Tensor::empty({kBatch, 28, 28, 1}, DType::f32, device);
        const Tensor labels = Tensor::empty({kBatch}, DType::i64, device);
        // Rank 0 does it while no rank does anything else.
        const auto alone = [&](const std::function<void()>& look) {
          c.barrier();
          if (c.rank() == 0) look();
          c.barrier();
        };
        runtime_for(device).synchronize(current_stream(device));
        alone([] { cudasim::set_computing(false); });
        step::StepGraph graph(device);
        for (int step = 0; step < 2 + kSteps; ++step) {
          // The first step is called, the second one recorded.
          if (step == 2) {
            runtime_for(device).synchronize(current_stream(device));
            alone([] {
              cudasim::reset_counters();
              cudasim::set_tracing(true);
            });
          }
          graph.run({.input = {kBatch}}, [&] {
            sgd.zero_grad();
            const Variable loss = ops::cross_entropy(model->forward(images), labels,
                                                     {.reduction = ops::Reduction::sum, .stats = parameters.tail()});
            backward(loss, parallel.hook());
            parallel.finish();
            sgd.step({.divide_by_weight_sum = true, .halt_on_non_finite = true});
          });
        }
        alone([&] {
          result.used = cudasim::counters();
          result.trace = cudasim::trace();
          cudasim::set_tracing(false);
        });
        // Nothing may be left that would compute.
        cudaSetDevice(c.rank());
        cudaDeviceSynchronize();
        alone([] { cudasim::set_computing(true); });
      });
  return result;
}

}  // namespace

TEST_CASE(
    "two ranks exchange the gradients of ResNet-18 in at most four calls, the last one small, in one graph each") {
  for (const auto& [model, most_kernels] : {std::pair{"resnet18", 103}, std::pair{"resnet18-cifar", 101}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const bool half = dtype == DType::bf16;
      const Exchange found = exchange_of(model, dtype);
      std::vector<std::int64_t> nbytes;  // of rank 0's calls in a step
      std::int64_t calls = 0, kernels = 0;
      for (const cudasim::OpRecord& op : found.trace) {
        CHECK(op.in_graph);
        if (op.device != 0) continue;
        if (op.kind != cudasim::OpKind::collective) {
          ++kernels;
        } else if (++calls <= static_cast<std::int64_t>(found.used.collectives) / (kRanks * kSteps)) {
          nbytes.push_back(op.bytes_read);
        }
      }
      CAPTURE(model, half, nbytes, kernels);
      REQUIRE(!nbytes.empty());
      std::int64_t total = 0;
      for (const std::int64_t n : nbytes) total += n;
      // In bf16 the sums beside the gradients have a call of their own, of 32 bytes in f32.
      CHECK(nbytes.size() <= (half ? 5 : 4));
      const double mb = 1e6 * (half ? 0.5 : 1.0);
      CHECK(static_cast<double>(total) <= 44.8 * mb);
      CHECK(static_cast<double>(total) >= 44.6 * mb);
      CHECK(static_cast<double>(nbytes.back()) <= 3 * mb);
      // Without the one that loads images. What is known without having been written is written before it travels, by a
      // kernel for each call; gradients are rounded and widened by two.
      CHECK(kernels <= (most_kernels - 1 + static_cast<std::int64_t>(nbytes.size()) * (half ? 3 : 1)) * kSteps);
      CHECK(found.used.graph_launches == kRanks * kSteps);
      CHECK(found.used.host_waits == 0);
      CHECK(found.used.allocations + found.used.frees == 0);
      CHECK(found.used.copies_host_to_device + found.used.copies_device_to_host + found.used.copies_device_to_device ==
            0);
      CHECK(found.used.fills == 0);
    }
  }
}

}  // namespace heddle::test
