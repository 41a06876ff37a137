// Every row of op_cases against its double reference, on every device of this program.
#include <algorithm>

#include "tests/ops/op_cases.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Arrays;

TEST_CASE("every op agrees with its reference, touches nothing else and repeats bit for bit") {
  for (const Device device : test_devices()) {
    for (const OpCase& row : op_cases()) {
      ParityRow parity{.name = row.name, .inputs = row.inputs};
      ParityOutput output{.shape = row.shape};
      if (!row.differentiable) output.dtype = DType::u8;
      parity.outputs = {output};
      parity.call = [&](const std::vector<Tensor>& in, std::vector<Tensor>& out, WriteMode) {
        const Variable y = row.call({in.begin(), in.end()});
        CHECK(y.shape() == row.shape);
        CHECK_FALSE(y.requires_grad());
        out[0].copy_from(y.data());
      };
      parity.reference = [&](const Arrays& in) { return Arrays{row.reference(in)}; };
      parity.thread_invariant = false;
      parity.tolerance = row.tolerance;
      parity.dtypes = row.dtypes;
      if (!device.is_cpu()) std::erase(parity.dtypes, DType::f64);
      expect_parity(parity, device);
    }
  }
}

TEST_CASE("names of op cases are unique, so that a benchmark can choose by name") {
  std::vector<std::string> names;
  for (const OpCase& row : op_cases()) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}
