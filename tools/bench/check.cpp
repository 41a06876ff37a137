#include "tools/bench/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/device/device_runtime.h"
#include "reference/values.h"

namespace heddle::tools::bench {
namespace {

// Multiply-adds that the plain loops do in about a second.
constexpr double kReferenceWork = 1 << 27;

Array random_values(const Input& input, std::uint64_t seed) {
  if (input.values) return *input.values;
  if (is_floating(input.dtype)) return reference::random_array(input.shape, input.low, input.high, seed);
  return reference::integer_array(input.shape, static_cast<std::int64_t>(input.low),
                                  static_cast<std::int64_t>(input.high), seed);
}

// Entries [begin, begin + n) of a dimension.
Array cut(const Tensor& host, int dim, std::int64_t begin, std::int64_t n) {
  if (dim == kWhole) return reference::array_of(host);
  if (dim == 0) return reference::array_of(host.narrow(begin, n));
  const Array all = reference::array_of(host);
  std::vector<std::int64_t> dims(all.shape.dims().begin(), all.shape.dims().end());
  const std::int64_t outer = all.shape.numel_between(0, dim), from = dims[static_cast<std::size_t>(dim)];
  const std::int64_t inner = all.shape.numel_between(dim + 1, all.shape.rank());
  dims[static_cast<std::size_t>(dim)] = n;
  Array part{Shape(dims)};
  for (std::int64_t o = 0; o < outer; ++o) {
    const auto* const source = all.values.data() + (o * from + begin) * inner;
    std::copy_n(source, n * inner, part.values.data() + o * n * inner);
  }
  return part;
}

double root_mean_square(const Array& array) {
  double squares = 0, count = 0;
  for (const double value : array.values) {
    if (!std::isfinite(value)) continue;
    squares += value * value;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(squares / count);
}

// A NaN's sign means nothing and would only confuse.
double without_sign(double value) { return std::isnan(value) ? std::abs(value) : value; }

// Updates result if an element of this output is worse than what it holds.
void compare_output(std::size_t index, const Array& value, const Array& expected, double tolerance,
                    CheckResult& result) {
  if (value.numel() != expected.numel()) {
    result = {
        .ok = false,
        .error = 1,
        .tolerance = tolerance,
        .problem = fmt::format("output {} has {} elements, the reference {}", index, value.numel(), expected.numel())};
    return;
  }
  const double scale = root_mean_square(expected);
  for (std::int64_t i = 0; i < value.numel(); ++i) {
    const double v = value[i], e = expected[i];
    if (v == e || (std::isnan(v) && std::isnan(e))) continue;
    double error = std::abs(v - e) / (scale + std::abs(e));
    if (!(error < std::numeric_limits<double>::infinity())) error = std::numeric_limits<double>::infinity();
    if (error > tolerance && result.ok) {
      result = {
          .ok = false,
          .error = error,
          .tolerance = tolerance,
          .problem = fmt::format("output {}, element {} is {:.9g}, expected {:.9g}", index, i, without_sign(v), e)};
    } else if (result.ok && error * result.tolerance >= result.error * tolerance) {
      result.error = error;
      result.tolerance = tolerance;
    }
  }
}

}  // namespace

Operands::Operands(const Case& c, Device device) {
  std::uint64_t seed = 0;
  for (const Input& input : c.inputs) {
    ++seed;
    inputs_.push_back(input.undefined ? Tensor()
                                      : reference::tensor_of(random_values(input, seed), input.dtype, device));
  }
  for (const Output& output : c.outputs) {
    if (output.updated) {
      initial_.push_back(
          reference::tensor_of(reference::random_array(output.shape, output.low, output.high, ++seed), output.dtype));
    } else {
      Tensor start = Tensor::empty(output.shape, output.dtype);
      if (start.nbytes() != 0) std::memset(start.mutable_raw_data(), 0xff, start.nbytes());
      initial_.push_back(start);
    }
    outputs_.push_back(Tensor::empty(output.shape, output.dtype, device));
  }
  reset_outputs();
}

void Operands::reset_outputs() {
  for (std::size_t i = 0; i < outputs_.size(); ++i) outputs_[i].copy_from(initial_[i]);
}

Expectation::Expectation(const Case& c, const Operands& operands) : case_(c) {
  const int dim = c.outputs[0].cut;
  const double work = c.work > 0 ? c.work : c.flops / 2;
  if (dim != kWhole && work > kReferenceWork) {
    const std::int64_t extent = c.outputs[0].shape[dim];
    const auto n =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(extent) * kReferenceWork / work / 2));
    if (2 * n < extent) {
      whole_ = false;
      parts_ = {{0, n, {}}, {extent - n, n, {}}};
      extent_ = fmt::format("{} of {}", 2 * n, extent);
    }
  }
  if (whole_) parts_.resize(1);
  for (Part& part : parts_) {
    Arrays arguments;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      const Tensor host = c.inputs[i].undefined ? Tensor() : operands.inputs()[i].to(Device::cpu());
      arguments.push_back(host.defined() ? cut(host, whole_ ? kWhole : c.inputs[i].cut, part.begin, part.n) : Array());
    }
    for (std::size_t i = 0; i < c.outputs.size(); ++i) {
      if (!c.outputs[i].updated) continue;
      arguments.push_back(cut(operands.initial()[i], whole_ ? kWhole : c.outputs[i].cut, part.begin, part.n));
    }
    part.expected = c.reference(arguments);
  }
}

CheckResult Expectation::compare(const std::vector<Tensor>& outputs) const {
  CheckResult result{.ok = true, .error = 0, .tolerance = tolerance_for(case_, outputs[0].dtype()), .problem = {}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor host = outputs[i].to(Device::cpu());
    for (const Part& part : parts_) {
      const Array value = cut(host, whole_ ? kWhole : case_.outputs[i].cut, part.begin, part.n);
      compare_output(i, value, part.expected[i], tolerance_for(case_, host.dtype()), result);
    }
  }
  return result;
}

double tolerance_for(const Case& c, DType dtype) {
  if (!is_floating(dtype)) return 0;
  const double base = dtype == DType::bf16 ? 8e-3 : 1e-5;
  return base * std::max(1.0, std::sqrt(c.terms / 1024)) * c.tolerance;
}

}  // namespace heddle::tools::bench
