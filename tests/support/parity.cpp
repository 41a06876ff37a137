#include "tests/support/parity.h"

#include <cmath>
#include <cstring>
#include <deque>

#include "engine/core/parallel.h"
#include "engine/device/device_runtime.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/guarded_tensor.h"

namespace heddle::testing {
namespace {

using reference::Array;
using reference::Arrays;

// How one call is made.
struct Variant {
  WriteMode mode = WriteMode::store;
  std::int64_t shift = 0;
  int threads = 0;  // 0: the default
};

Array values_of(const ParityInput& input, DType dtype, std::uint64_t seed) {
  if (input.values) return *input.values;
  if (is_floating(dtype)) return random_array(input.shape, input.low, input.high, seed);
  return integer_array(input.shape, static_cast<std::int64_t>(input.low), static_cast<std::int64_t>(input.high), seed);
}

class Run {
 public:
  Run(const ParityRow& row, DType float_dtype, Device device) : row_(row), device_(device) {
    std::uint64_t seed = 0;
    for (const ParityInput& input : row.inputs) {
      const DType dtype = input.dtype.value_or(float_dtype);
      inputs_.push_back(input.undefined ? Tensor() : tensor_of(values_of(input, dtype, ++seed), dtype));
      arguments_.push_back(input.undefined ? Array() : array_of(inputs_.back()));
    }
    for (const ParityOutput& output : row.outputs) {
      const DType dtype = output.dtype.value_or(float_dtype);
      HEDDLE_CHECK(!output.initial || output.initial->shape == output.shape, row.name, ": initial value of shape ",
                   output.initial->shape, " for an output ", output.shape);
      initial_.push_back(
          tensor_of(output.initial ? *output.initial : integer_array(output.shape, 1, 9, ++seed), dtype));
      if (output.initial) arguments_.push_back(array_of(initial_.back()));
    }
    expected_ = row.reference(arguments_);
    HEDDLE_CHECK(expected_.size() == row.outputs.size(), row.name, ": the reference returns ", expected_.size(),
                 " arrays for ", row.outputs.size(), " outputs");
  }

  // Calls with fresh memory, checks everything but repeatability, and returns the outputs' bytes.
  std::vector<std::vector<unsigned char>> call(const Variant& variant) const {
    std::deque<GuardedTensor> inputs, outputs;
    std::vector<Tensor> in, out;
    for (const Tensor& input : inputs_) {
      if (!input.defined()) {
        in.emplace_back();
        continue;
      }
      in.push_back(inputs.emplace_back(input, device_, variant.shift, true).tensor());
    }
    for (std::size_t i = 0; i < row_.outputs.size(); ++i) {
      Tensor start = initial_[i].clone();
      if (!keeps_initial(i, variant.mode) && start.nbytes() != 0) {
        std::memset(start.mutable_raw_data(), 0xff, start.nbytes());
      }
      out.push_back(outputs.emplace_back(start, device_, variant.shift, false).tensor());
    }
    if (variant.threads > 0) {
      const ThreadLimit limit(variant.threads);
      row_.call(in, out, variant.mode);
    } else {
      row_.call(in, out, variant.mode);
    }
    runtime_for(device_).synchronize(current_stream(device_));

    for (const GuardedTensor& input : inputs) report("an input", input.check_unchanged());
    std::vector<std::vector<unsigned char>> bytes;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::string what = join_text("output ", i);
      report(what + " outside its memory", outputs[i].check_guards());
      report(what, compare(array_of(out[i]), expected(i, variant.mode), row_.tolerance * tolerance_of(out[i].dtype())));
      bytes.push_back(outputs[i].bytes());
    }
    return bytes;
  }

  void expect_repeatable(WriteMode mode) const {
    const auto first = call({.mode = mode});
    report("a second call", first == call({.mode = mode}) ? "" : "gives other bits");
    if (row_.any_alignment) call({.mode = mode, .shift = 1});
    if (!device_.is_cpu()) return;
    for (const int threads : {1, 2, 3}) {
      const auto other = call({.mode = mode, .threads = threads});
      if (row_.thread_invariant) {
        report(join_text("a call with ", threads, " threads"), first == other ? "" : "gives other bits");
      }
    }
  }

 private:
  bool keeps_initial(std::size_t i, WriteMode mode) const {
    return row_.outputs[i].initial.has_value() || mode == WriteMode::add;
  }

  Array expected(std::size_t i, WriteMode mode) const {
    Array value = expected_[i];
    if (mode == WriteMode::add && !row_.outputs[i].initial) {
      const Array old = array_of(initial_[i]);
      for (std::int64_t k = 0; k < value.numel(); ++k) value[k] += old[k];
    }
    return value;
  }

  static void report(const std::string& what, const std::string& problem) {
    if (!problem.empty()) FAIL_CHECK(what << ": " << problem);
  }

  const ParityRow& row_;
  Device device_;
  std::vector<Tensor> inputs_, initial_;
  Arrays arguments_, expected_;
};

}  // namespace

ParityInput random_input(const Shape& shape, double low, double high) {
  return {.shape = shape, .low = low, .high = high};
}

ParityInput integer_input(const Shape& shape, DType dtype, std::int64_t low, std::int64_t high) {
  return {.shape = shape, .low = static_cast<double>(low), .high = static_cast<double>(high), .dtype = dtype};
}

ParityInput exact_input(reference::Array values, std::optional<DType> dtype) {
  const Shape shape = values.shape;
  return {.shape = shape, .values = std::move(values), .dtype = dtype};
}

ParityInput no_input() { return {.undefined = true}; }

std::vector<DType> float_dtypes(Device device) {
  if (device.is_cpu()) return {DType::f32, DType::f64, DType::bf16};
  return {DType::f32, DType::bf16};
}

double tolerance_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return 1e-5;
    case DType::f64: return 1e-12;
    case DType::bf16: return 8e-3;
    default: return 0;
  }
}

std::string compare(const reference::Array& value, const reference::Array& expected, double tolerance) {
  if (value.numel() != expected.numel()) {
    return join_text("shape ", value.shape, ", the reference has ", expected.shape);
  }
  for (std::int64_t i = 0; i < value.numel(); ++i) {
    const double v = value[i], e = expected[i];
    if (v == e || (std::isnan(v) && std::isnan(e))) continue;
    // Written so that a NaN on one side only is a difference.
    if (std::isfinite(e) && std::abs(v - e) <= tolerance * (1 + std::abs(e))) continue;
    std::ostringstream text;
    text.precision(17);
    text << "element " << i << " of " << value.shape << " is " << v << ", expected " << e;
    return text.str();
  }
  return "";
}

Backend& backend_of(const std::vector<Tensor>& out) { return backend_for(out.at(0).device()); }

void expect_parity_everywhere(const ParityRow& row) {
  for (const Device device : test_devices()) {
    ParityRow own = row;
    std::erase_if(own.dtypes, [&](DType dtype) { return !holds(device, dtype); });
    expect_parity(own, device);
  }
}

void expect_parity(const ParityRow& row, Device device) {
  for (const DType dtype : row.dtypes) {
    const Run run(row, dtype, device);
    for (const WriteMode mode : {WriteMode::store, WriteMode::add}) {
      if (mode == WriteMode::add && !row.write_modes) continue;
      INFO(row.name << ", " << device << ", " << dtype << (mode == WriteMode::add ? ", add" : ", store"));
      run.expect_repeatable(mode);
      SUCCEED();
    }
  }
}

}  // namespace heddle::testing
