// The generator against published vectors, and the primitives that use it against the references, on every device.
#include "engine/core/random.h"

#include <cmath>
#include <map>

#include "engine/backend/backend.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;
using reference::Arrays;

namespace {

const std::vector<DType> kFloats = {DType::f32, DType::f64, DType::bf16};

// The counter's value in memory of each test device.
std::map<std::string, Tensor> counters_of(std::int64_t value) {
  std::map<std::string, Tensor> counters;
  for (const Device device : test_devices()) {
    counters[device.to_string()] = Tensor::from_values<std::int64_t>({value}, {1}, device);
  }
  return counters;
}

// The stream for a call with these outputs: its counter, if it has one, is on their device.
RandomStream on_device(RandomStream stream, const std::vector<Tensor>& out,
                       const std::map<std::string, Tensor>& counters) {
  if (stream.counter != nullptr) {
    stream.counter = counters.at(out[0].device().to_string()).device_data<std::int64_t>();
  }
  return stream;
}

}  // namespace

TEST_CASE("Philox gives the known answers of its authors") {
  // Random123, kat_vectors, philox4x32 with 10 rounds.
  CHECK(philox_block(0, 0) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox_block(~0ull, ~0ull, ~0ull) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox_block(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random tensors are the stream of the definition whatever the offset") {
  const std::int64_t counter = (std::int64_t{7} << 32) + 5;
  const auto counters = counters_of(counter);
  for (const std::uint64_t offset : {0ull, 1ull, 6ull, 4611686018427387903ull}) {
    const RandomStream stream{
        .seed = 0x123456789abcdefull, .offset = offset, .counter = offset % 2 == 0 ? &counter : nullptr};
    for (const Shape& shape : {Shape{0}, Shape{1}, Shape{3, 5}, Shape{20001}}) {
      expect_parity_everywhere(
          {.name = join_text("random_uniform ", shape, " from ", offset),
           .outputs = {{shape}},
           .call = [&](auto&, auto& out,
                       WriteMode) { backend_of(out).random_uniform(-2, 5, on_device(stream, out, counters), out[0]); },
           .reference = [&](const Arrays&) { return Arrays{reference::random_uniform(-2, 5, stream, shape)}; },
           .dtypes = kFloats});
      expect_parity_everywhere(
          {.name = join_text("random_normal ", shape, " from ", offset),
           .outputs = {{shape}},
           .call = [&](auto&, auto& out,
                       WriteMode) { backend_of(out).random_normal(1, 3, on_device(stream, out, counters), out[0]); },
           .reference = [&](const Arrays&) { return Arrays{reference::random_normal(1, 3, stream, shape)}; },
           .dtypes = kFloats});
      for (const double p : {0.0, 0.3, 1.0}) {
        if (p == 1.0 && shape.numel() == 0) continue;
        expect_parity_everywhere(
            {.name = join_text("dropout ", shape, " p ", p, " from ", offset),
             .inputs = {random_input(shape)},
             .outputs = {{shape}},
             .call =
                 [&](auto& in, auto& out, WriteMode mode) {
                   backend_of(out).dropout(in[0], p, on_device(stream, out, counters), out[0], mode);
                 },
             .reference = [&](const Arrays& in) { return Arrays{reference::dropout(in[0], p, stream)}; },
             .write_modes = true,
             .dtypes = kFloats});
      }
    }
  }
}

TEST_CASE("moments of random numbers are those of their distribution") {
  const std::int64_t n = 400'000;
  for (const Device device : test_devices()) {
    Backend& backend = backend_for(device);
    Tensor y = Tensor::empty({n}, DType::f32, device);
    const auto moments = [&] {
      double sum = 0, squares = 0;
      for (const float v : y.to_vector<float>()) {
        sum += static_cast<double>(v);
        squares += static_cast<double>(v) * static_cast<double>(v);
      }
      const double mean = sum / static_cast<double>(n);
      return std::pair{mean, squares / static_cast<double>(n) - mean * mean};
    };
    // Five standard errors: the deviation over sqrt(n) for means, sqrt(2 / n) * variance for a normal's variance.
    backend.random_uniform(0, 1, {.seed = 5}, y);
    CHECK(std::abs(moments().first - 0.5) < 5 * 0.2887 / 632);
    CHECK(moments().second == Approx(1.0 / 12).epsilon(0.01));
    backend.random_normal(2, 3, {.seed = 6}, y);
    CHECK(std::abs(moments().first - 2) < 5 * 3.0 / 632);
    CHECK(moments().second == Approx(9).epsilon(0.012));
  }
}

TEST_CASE("uniform numbers never reach their upper bound") {
  for (const Device device : test_devices()) {
    Tensor y = Tensor::empty({300'000}, DType::f32, device);
    backend_for(device).random_uniform(16777215.0, 16777216.0, {.seed = 1}, y);
    const std::vector<float> values = y.to_vector<float>();
    for (const float v : values) REQUIRE(v < 16777216.0f);
  }
}
