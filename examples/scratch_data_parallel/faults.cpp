#include "faults.h"

#include <array>
#include <cstdio>
#include <utility>

#include <heddle/autograd/node.h>
#include <heddle/core/error.h>
#include <heddle/core/random.h>
#include <heddle/core/text.h>
#include <heddle/nn/activation.h>
#include <heddle/nn/conv2d.h>
#include <heddle/nn/sequential.h>
#include <heddle/ops/ops.h>

namespace nn = heddle::nn;
using heddle::Tensor;
using heddle::Variable;

namespace {

constexpr std::array<std::pair<const char*, Fault>, 6> kFaults = {{{"none", Fault::none},
                                                                   {"assign", Fault::assign},
                                                                   {"copy", Fault::copy},
                                                                   {"first-only", Fault::first_only},
                                                                   {"mean-twice", Fault::mean_twice},
                                                                   {"shortcut", Fault::shortcut}}};

Tensor sum_on_first(const std::vector<Tensor>& data) {
  const heddle::NoGradGuard no_grad;
  Variable total = data[0];
  for (std::size_t i = 1; i < data.size(); ++i) total = total + data[i].to(data[0].device());
  return total.data();
}

}  // namespace

std::optional<Fault> fault_from_name(const std::string& name) {
  for (const auto& [known, fault] : kFaults) {
    if (name == known) return fault;
  }
  return std::nullopt;
}

std::string fault_names() {
  std::string names;
  for (const auto& row : kFaults) names += (names.empty() ? "" : ", ") + std::string(row.first);
  return names;
}

void allreduce_assigning(std::vector<Tensor>& data) {
  data[0].copy_from(sum_on_first(data));
  // Element i of the list is another tensor from here on; the gradient of device i is what it was.
  for (std::size_t i = 1; i < data.size(); ++i) data[i] = data[0].to(data[i].device());
}

void allreduce_copies(std::vector<Tensor> data) {
  // Right in itself, but of what it writes nothing is ever read.
  for (Tensor& gradient : data) gradient = gradient.clone();
  const Tensor total = sum_on_first(data);
  for (Tensor& gradient : data) gradient.copy_from(total);
}

bool show_shortcut() {
  const heddle::NoGradGuard no_grad;
  heddle::Philox random(1);
  nn::Sequential convolutions(
      {std::make_shared<nn::Conv2d>(64, 128, nn::Conv2dOptions{.kernel_size = 3, .stride = 2, .padding = 1}),
       std::make_shared<nn::ReLU>(),
       std::make_shared<nn::Conv2d>(128, 128, nn::Conv2dOptions{.kernel_size = 3, .padding = 1})});
  nn::Conv2d projection(64, 128, {.kernel_size = 1, .stride = 2});
  convolutions.reset_parameters(random);
  projection.reset_parameters(random);
  const Variable x = Tensor::full({1, 56, 56, 64}, 1.0);
  const Variable y = convolutions.forward(x);
  std::printf("a residual block from 64 to 128 channels with stride 2, on 56x56 pixels:\n");
  std::printf("two convolutions             %s, %lld values\n", heddle::join_text(y.shape()).c_str(),
              static_cast<long long>(y.numel()));
  std::printf("the input as shortcut        %s, %lld values\n", heddle::join_text(x.shape()).c_str(),
              static_cast<long long>(x.numel()));
  const Variable projected = projection.forward(x);
  std::printf("a 1x1 convolution, stride 2  %s, %lld values\n", heddle::join_text(projected.shape()).c_str(),
              static_cast<long long>((y + projected).numel()));
  try {
    y + x;
    return true;
  } catch (const heddle::InvalidArgument& error) {
    std::printf("without the convolution: %s\n", error.what());
    return false;
  }
}
