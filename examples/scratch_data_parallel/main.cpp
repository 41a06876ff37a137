// Data-parallel training from scratch, as textbooks explain it: every device has a copy of the parameters and works on
// its piece of the batch, the gradients are added up over the devices, and each device makes the same update. At the
// end the same is done with the library's DataParallel, and the weights are compared.
//
//   scratch_data_parallel [--devices K] [--steps N] [--batch-size B] [--device cpu|cuda]
//                         [--data-dir DIR] [--fault NAME]
//
// The K devices are virtual: all are the one given with --device. --data-dir has unpacked Fashion-MNIST; without it
// images are computed. Exit code 0: the weights agree within 1e-5; 1: they do not, or something failed; 2: wrong flags.
// Build files for an installed Heddle: Makefile and CMakeLists.txt.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <heddle/core/error.h>
#include <heddle/device/cuda_plugin.h>

#include "training.h"

using heddle::Device;

namespace {

constexpr double kTolerance = 1e-5;

struct WrongFlag {
  std::string text;
};

double norm_of_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum);
}

// ||a - b|| / ||b||.
double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  return norm_of_difference(a, b) / norm_of_difference(b, std::vector<float>(b.size()));
}

double largest_distance(const std::vector<std::vector<float>>& replicas) {
  double largest = 0;
  for (const std::vector<float>& replica : replicas) {
    largest = std::max(largest, relative_distance(replica, replicas[0]));
  }
  return largest;
}

// The batches of the training, one after the other through the images.
std::vector<Images> make_batches(const Options& options) {
  const std::int64_t n = options.batch_size * options.steps;
  const Images all = options.data_dir.empty() ? make_images(n) : read_fashion_mnist(options.data_dir, n);
  std::vector<Images> batches;
  for (int i = 0; i < options.steps; ++i) {
    batches.push_back({all.pixels.narrow(i * options.batch_size, options.batch_size),
                       all.labels.narrow(i * options.batch_size, options.batch_size)});
  }
  return batches;
}

Options read_options(const std::vector<std::string>& arguments) {
  Options options;
  const auto whole = [](const std::string& flag, const std::string& text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > 10'000) {
      throw WrongFlag{flag + " " + text + ": expected 1 to 10000"};
    }
    return value;
  };
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& flag = arguments[i];
    if (i + 1 == arguments.size()) throw WrongFlag{flag + " needs a value"};
    const std::string& value = arguments[i + 1];
    if (flag == "--devices") {
      options.devices = whole(flag, value);
    } else if (flag == "--steps") {
      options.steps = whole(flag, value);
    } else if (flag == "--batch-size") {
      options.batch_size = whole(flag, value);
    } else if (flag == "--device" && (value == "cpu" || value == "cuda")) {
      options.device = value;
    } else if (flag == "--data-dir") {
      options.data_dir = value;
    } else if (flag == "--fault" && fault_from_name(value)) {
      options.fault = *fault_from_name(value);
    } else {
      throw WrongFlag{flag + " " + value + " (faults: " + fault_names() + ")"};
    }
  }
  return options;
}

Device choose_device(const std::string& name) {
  std::string why_not;
  if (name == "cpu") return Device::cpu();
  if (!heddle::load_cuda_plugin(&why_not)) throw heddle::DeviceError("no GPU: " + why_not);
  return Device::cuda(0);
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = read_options({argv + 1, argv + argc});
  if (options.fault == Fault::shortcut) return show_shortcut() ? 0 : 1;
  const std::vector<Device> devices(static_cast<std::size_t>(options.devices), choose_device(options.device));
  const std::vector<Images> batches = make_batches(options);
  std::printf("%d copies of the parameters on %s, %d batches of %lld images\n", options.devices,
              devices[0].to_string().c_str(), options.steps, static_cast<long long>(options.batch_size));
  const std::vector<float> start = values_of(parameters_of(*make_lenet()));
  const Outcome hand = train_by_hand(options, batches, devices);
  const Outcome library = train_with_library(options, batches, devices);
  const double distance = relative_distance(hand.weights[0], library.weights[0]);
  std::printf("loss of the last step           %.4f by hand, %.4f with DataParallel\n", hand.loss, library.loss);
  std::printf("distance between the replicas   %.2e by hand, %.2e with DataParallel\n", largest_distance(hand.weights),
              largest_distance(library.weights));
  std::printf("length of the first step        %.4f of DataParallel's\n",
              norm_of_difference(hand.first_step, start) / norm_of_difference(library.first_step, start));
  std::printf("distance from DataParallel      %.2e\n", distance);
  std::printf("%s\n", distance <= kTolerance ? "the weights agree" : "the weights differ");
  return distance <= kTolerance ? 0 : 1;
} catch (const WrongFlag& wrong) {
  std::fprintf(stderr, "wrong flag: %s\n", wrong.text.c_str());
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
