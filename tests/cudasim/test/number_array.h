// Arrays in (simulated) device memory for the tests of the simulated libraries, and values to put there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/cudasim/numbers.h"
#include "tests/cudasim/test/device_array.h"

using cudasim::test::require_ok;

// An array of numbers stored as `type`; the host side is double. Copies wait for the whole device.
class NumberArray {
 public:
  explicit NumberArray(std::int64_t numel, cudasim::ElementType type = cudasim::ElementType::float32)
      : type_(type), numel_(numel) {
    require_ok(cudaMalloc(&data_, nbytes()));
  }
  explicit NumberArray(const std::vector<double>& values, cudasim::ElementType type = cudasim::ElementType::float32)
      : NumberArray(static_cast<std::int64_t>(values.size()), type) {
    upload(values);
  }
  ~NumberArray() { cudaFree(data_); }
  NumberArray(const NumberArray&) = delete;
  NumberArray& operator=(const NumberArray&) = delete;

  std::size_t nbytes() const { return cudasim::bytes_of(type_, numel_); }
  std::int64_t numel() const { return numel_; }
  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }
  void upload(const std::vector<double>& values) {
    std::vector<unsigned char> bytes(nbytes());
    cudasim::write_elements(bytes.data(), {.type = type_, .n = numel_}, values.data());
    require_ok(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }
  // Sets every byte.
  void fill(int byte) const { require_ok(cudaMemset(data_, byte, nbytes())); }
  std::vector<double> download() const {
    require_ok(cudaDeviceSynchronize());
    std::vector<unsigned char> bytes(nbytes());
    require_ok(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost));
    std::vector<double> values(static_cast<std::size_t>(numel_));
    cudasim::read_elements(bytes.data(), {.type = type_, .n = numel_}, values.data());
    return values;
  }

 private:
  cudasim::ElementType type_;
  std::int64_t numel_;
  void* data_ = nullptr;
};

// Values between -1 and 1 in steps of 1/64, other ones for each seed: exact in every float type, so that sums of
// products can be compared closely.
inline std::vector<double> varied(std::int64_t numel, std::uint32_t seed) {
  std::vector<double> values;
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::int64_t i = 0; i < numel; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back((static_cast<double>(state >> 16 & 127) - 63) / 64);
  }
  return values;
}

// The largest difference, relative to 1 or to the larger value.
inline double largest_error(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) return 1e300;
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double scale = std::max(1.0, std::abs(expected[i]));
    const double error = std::abs(got[i] - expected[i]) / scale;
    if (!(error <= largest)) largest = error;  // a NaN counts
  }
  return largest;
}
