// One harness for everything that computes: a row names a call, its inputs, its outputs and a reference in double, and
// expect_parity runs it in every dtype, write mode, thread count and alignment and checks
//   - the values against the reference,
//   - that outputs do not depend on what fresh memory held (it is NaN) and nothing outside them is written,
//   - that inputs are unchanged,
//   - that a second call, and any number of threads, gives the same bits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "tests/support/values.h"

namespace heddle::testing {

// An argument that is read: the given values, or else random ones of [low, high], other ones for each argument.
struct ParityInput {
  Shape shape;
  double low = -1, high = 1;
  std::optional<reference::Array> values;
  std::optional<DType> dtype;  // unset: the float type of the run
  bool undefined = false;
};
ParityInput random_input(const Shape& shape, double low = -1, double high = 1);
// Whole numbers.
ParityInput integer_input(const Shape& shape, DType dtype, std::int64_t low, std::int64_t high);
ParityInput exact_input(reference::Array values, std::optional<DType> dtype = {});
ParityInput no_input();

// An argument that is written. With `initial` the call reads the old value too (update in place, partial write):
// it is then an argument of the reference, behind the inputs.
struct ParityOutput {
  Shape shape;
  std::optional<DType> dtype;
  std::optional<reference::Array> initial;
};

struct ParityRow {
  std::string name;
  std::vector<ParityInput> inputs;
  std::vector<ParityOutput> outputs;
  std::function<void(const std::vector<Tensor>& in, std::vector<Tensor>& out, WriteMode mode)> call;
  // Values of all outputs in store mode. Inputs arrive rounded to the dtype of the run.
  std::function<reference::Arrays(const reference::Arrays& in)> reference;
  bool write_modes = false;      // run also with WriteMode::add: outputs without `initial` are added to
  bool thread_invariant = true;  // the same bits with 1, 2 and 3 threads; else the same within tolerance
  bool any_alignment = true;     // run also with tensors that begin one element behind an aligned address
  double tolerance = 1;          // factor on the tolerance of the dtype, for long sums
  std::vector<DType> dtypes = {DType::f32, DType::f64};
};

// The float types that a device computes with.
std::vector<DType> float_dtypes(Device device);
// |value - expected| <= tolerance * (1 + |expected|): 1e-5 for f32, 1e-12 for f64, 8e-3 for bf16, exact for integers.
double tolerance_of(DType dtype) noexcept;
// "" if all elements agree (NaN with NaN, infinity with itself), else the first that does not.
std::string compare(const reference::Array& value, const reference::Array& expected, double tolerance);

// Runs the row and reports every difference as a failed check of the current test case.
void expect_parity(const ParityRow& row, Device device = Device::cpu());
// On every test device, in those of the row's dtypes that it holds.
void expect_parity_everywhere(const ParityRow& row);
// The backend of the device that a row's call was given its tensors on.
Backend& backend_of(const std::vector<Tensor>& out);

}  // namespace heddle::testing
