// Hashes of tensors: the same on every device, and of every bit.
#include <algorithm>
#include <set>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/bit_hash.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"

using namespace heddle;

namespace {

std::vector<std::int64_t> hashes_of(const std::vector<Tensor>& tensors) {
  const Device device = tensors.front().device();
  Tensor y = Tensor::empty({static_cast<std::int64_t>(tensors.size())}, DType::i64, device);
  backend_for(device).hash(tensors, y);
  return y.to_vector<std::int64_t>();
}

std::vector<std::uint8_t> bytes(std::size_t n) {
  std::vector<std::uint8_t> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
  return values;
}

}  // namespace

TEST_CASE("the hash of a tensor is that of its bytes on every device, whatever its type, length and alignment") {
  for (const Device device : testing::test_devices()) {
    std::vector<Tensor> tensors;
    std::vector<std::int64_t> expected;
    const std::vector<std::uint8_t> values = bytes(200'000);
    const Tensor all = Tensor::from_values(values, {200'000}, device);
    for (const std::int64_t begin : {0, 1, 16, 23}) {
      for (const std::int64_t n : {0, 1, 7, 8, 15, 16, 17, 4096, 65'536, 65'537, 199'000}) {
        tensors.push_back(all.narrow(begin, n));
        expected.push_back(static_cast<std::int64_t>(hash_bits(values.data() + begin, static_cast<std::size_t>(n))));
      }
    }
    // More than a launch takes, and other types.
    while (tensors.size() < 150) {
      const std::vector<float> floats(tensors.size(), 0.5f);
      tensors.push_back(Tensor::from_values(floats, {static_cast<std::int64_t>(floats.size())}, device));
      expected.push_back(static_cast<std::int64_t>(hash_bits(floats.data(), floats.size() * sizeof(float))));
    }
    INFO(device);
    CHECK(hashes_of(tensors) == expected);
    CHECK(hashes_of(tensors) == expected);
  }
}

TEST_CASE("one flipped bit anywhere, and exchanged words, change the hash on every device") {
  constexpr std::size_t n = 70'003;
  std::vector<std::uint8_t> values = bytes(n);
  for (const Device device : testing::test_devices()) {
    std::vector<Tensor> tensors{Tensor::from_values(values, {static_cast<std::int64_t>(n)}, device)};
    for (std::size_t bit = 0; bit < 8 * n; bit += 8 * n / 90 - 1) {
      std::vector<std::uint8_t> flipped = values;
      flipped[bit / 8] = static_cast<std::uint8_t>(flipped[bit / 8] ^ (1u << (bit % 8)));
      tensors.push_back(Tensor::from_values(flipped, {static_cast<std::int64_t>(n)}, device));
    }
    std::vector<std::uint8_t> exchanged = values;
    std::swap_ranges(exchanged.begin(), exchanged.begin() + 8, exchanged.begin() + 8);
    tensors.push_back(Tensor::from_values(exchanged, {static_cast<std::int64_t>(n)}, device));
    const std::vector<std::int64_t> hashes = hashes_of(tensors);
    INFO(device);
    CHECK(std::set<std::int64_t>(hashes.begin(), hashes.end()).size() == hashes.size());
  }
}
