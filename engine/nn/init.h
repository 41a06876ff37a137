// Initial values of parameters. Drawn one after the other from a counter-based generator on the host, so that they are
// the same for any number of threads and on any device.
#pragma once

#include <cstdint>

#include "../core/random.h"
#include "../tensor/tensor.h"

namespace heddle::nn::init {

// How many inputs lead to one output of a weight, and how many outputs one input leads to. Weights are (out,in) or
// (O,KH,KW,I/groups). Throws: InvalidArgument below rank 2.
struct Fans {
  std::int64_t in = 0;
  std::int64_t out = 0;
};
Fans fans_of(const Shape& weight);

enum class FanMode : std::uint8_t { fan_in, fan_out };
enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu };

// Factor by which a layer's weights are larger to make up for the non-linearity after it. negative_slope is
// leaky_relu's. Source: torch.nn.init.calculate_gain.
double gain_of(Nonlinearity nonlinearity, double negative_slope = 0.01);

struct KaimingOptions {
  double negative_slope = 0.0;
  FanMode mode = FanMode::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
};

// All functions write every element of w (f32 or f64, any device). Throws: InvalidArgument.
void zeros(Tensor w);
void ones(Tensor w);
void constant(Tensor w, double value);
// Uniform in [low, high).
void uniform(Tensor w, double low, double high, Philox& random);
void normal(Tensor w, double mean, double stddev, Philox& random);
// Uniform in +-gain sqrt(3 / fan), normal with deviation gain / sqrt(fan).
// Source: He et al., "Delving deep into rectifiers", ICCV 2015, equations 10 and 14.
void kaiming_uniform(Tensor w, Philox& random, const KaimingOptions& options = {});
void kaiming_normal(Tensor w, Philox& random, const KaimingOptions& options = {});
// Uniform in +-gain sqrt(6 / (fan_in + fan_out)), normal with deviation gain sqrt(2 / (fan_in + fan_out)).
// Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", AISTATS 2010,
// equation 16.
void xavier_uniform(Tensor w, Philox& random, double gain = 1.0);
void xavier_normal(Tensor w, Philox& random, double gain = 1.0);
// What PyTorch's convolution and linear layers begin with: kaiming_uniform with slope sqrt(5), which is uniform in
// +-1/sqrt(fan_in), for the weight, and the same range for the bias (may be undefined).
void torch_default(Tensor weight, Tensor bias, Philox& random);

}  // namespace heddle::nn::init
