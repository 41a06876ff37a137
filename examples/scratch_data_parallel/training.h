// What the two ways to train have in common, and what each comes to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <heddle/autograd/variable.h>
#include <heddle/nn/module.h>

#include "faults.h"
#include "images.h"

constexpr double kLearningRate = 0.1;

struct Options {
  int devices = 4;
  int steps = 20;
  std::int64_t batch_size = 64;
  std::string device = "cpu";
  std::string data_dir;  // empty: computed images
  Fault fault = Fault::none;
};

// What a training has come to.
struct Outcome {
  std::vector<std::vector<float>> weights;  // by device
  std::vector<float> first_step;            // device 0's weights after one step
  double loss = 0;                          // of the last step
};

using Parameters = std::vector<heddle::Variable>;  // of one device
std::vector<float> values_of(const Parameters& parameters);
Parameters parameters_of(const heddle::nn::Module& model);

// One piece a device, on the device; sizes differ by one at most.
std::vector<Images> split_batch(const Images& batch, const std::vector<heddle::Device>& devices);

// The model: layers, with the parameters that both ways begin with.
std::shared_ptr<heddle::nn::Module> make_lenet();

// The batches, one a step, with the parameters copied to each device, and everything else written by hand.
Outcome train_by_hand(const Options& options, const std::vector<Images>& batches,
                      const std::vector<heddle::Device>& devices);
// The same with one rank a device and DataParallel.
Outcome train_with_library(const Options& options, const std::vector<Images>& batches,
                           const std::vector<heddle::Device>& devices);
