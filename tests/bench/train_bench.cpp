// A real training step (loader, layers, autograd, optimiser) on random images, timed phase by phase: what the engine
// costs around the primitives that step_bench times. Not a test. Usage: train_bench [model] [batch] [threads] [steps]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/data/data_loader.h"
#include "engine/device/caching_allocator.h"
#include "engine/nn/parameter_buffer.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "models/model_list.h"

using namespace heddle;

namespace {

constexpr const char* kPhases[] = {"load", "forward", "loss", "backward", "update", "step"};
constexpr std::size_t kPhaseCount = std::size(kPhases);

data::ResidentDataset random_images(std::int64_t count) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * 28 * 28)), labels(static_cast<std::size_t>(count));
  Philox random(1);
  for (auto& pixel : pixels) pixel = static_cast<std::uint8_t>(random.below(256));
  for (auto& label : labels) label = static_cast<std::uint8_t>(random.below(10));
  return {pixels, labels, 28, 28, 1, 10, Device::cpu()};
}

int run(const std::string& name, std::int64_t batch, int threads, int steps) {
  if (threads > 0) set_num_threads(threads);
  const auto model = models::make_model(name, {});
  Philox init(1);
  model->reset_parameters(init);
  nn::ParameterBuffer buffer(*model);
  optim::Sgd sgd(buffer, 0.1, SgdParams{});
  const data::ResidentDataset dataset = random_images(20000);
  data::DataLoader loader(dataset, {.batch_size = batch, .drop_last = true, .seed = 1});
  std::array<std::vector<double>, kPhaseCount> seconds;
  std::int64_t epoch = 0;
  loader.start_epoch(epoch);
  AllocatorStats warm;
  for (int i = 0; i < steps + 3; ++i) {
    std::array<std::chrono::steady_clock::time_point, kPhaseCount> times;
    times[0] = std::chrono::steady_clock::now();
    sgd.zero_grad();
    auto next = loader.next();
    if (!next) {
      loader.start_epoch(++epoch);
      next = loader.next();
    }
    times[1] = std::chrono::steady_clock::now();
    const Variable logits = model->forward(next->images);
    times[2] = std::chrono::steady_clock::now();
    const Variable loss =
        ops::cross_entropy(logits, next->labels, {.reduction = ops::Reduction::sum, .stats = buffer.tail()});
    times[3] = std::chrono::steady_clock::now();
    backward(loss);
    times[4] = std::chrono::steady_clock::now();
    sgd.step({.divide_by_weight_sum = true});
    times[5] = std::chrono::steady_clock::now();
    if (i < 3) {
      warm = allocator_for(Device::cpu()).stats();
      continue;
    }
    for (std::size_t p = 0; p + 1 < kPhaseCount; ++p) {
      seconds[p].push_back(std::chrono::duration<double>(times[p + 1] - times[p]).count());
    }
    seconds.back().push_back(std::chrono::duration<double>(times.back() - times.front()).count());
  }
  std::printf("%s, batch %lld, %d threads: microseconds, fastest and median of %d\n", name.c_str(),
              static_cast<long long>(batch), num_threads(), steps);
  for (std::size_t p = 0; p < kPhaseCount; ++p) {
    std::sort(seconds[p].begin(), seconds[p].end());
    std::printf("%-10s %10.1f %10.1f\n", kPhases[p], seconds[p].front() * 1e6, seconds[p][seconds[p].size() / 2] * 1e6);
  }
  const AllocatorStats now = allocator_for(Device::cpu()).stats();
  std::printf("allocator: %llu segments asked for after the third step, peak %.1f MiB\n",
              static_cast<unsigned long long>(now.device_allocations - warm.device_allocations),
              static_cast<double>(now.peak_in_use_nbytes) / 1048576.0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "lenet", argc > 2 ? std::atoll(argv[2]) : 256, argc > 3 ? std::atoi(argv[3]) : 0,
               argc > 4 ? std::atoi(argv[4]) : 200);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_bench: %s\n", error.what());
    return 1;
  }
}
