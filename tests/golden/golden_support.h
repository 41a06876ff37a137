// What the tests against PyTorch's numbers share.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/state_dict.h"
#include "tests/support/catch.h"

namespace heddle::test {

// Number i of a stream, as in make_golden.py.
inline std::uint32_t hash_u32(std::uint32_t stream, std::uint64_t i) {
  auto x = static_cast<std::uint32_t>(i + std::uint64_t{0x9E3779B9} * (stream + 1));
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// The same, uniform in [0,1).
inline double hash_unit(std::uint32_t stream, std::uint64_t i) {
  return static_cast<double>(hash_u32(stream, i) >> 8) * 0x1p-24;
}

// The sum of x on random signs: a difference d between two x projects to about +-|d|.
inline double projection(const std::vector<double>& x, std::uint32_t j) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (hash_u32(3000 + j, i) & 1) != 0 ? -x[i] : x[i];
  return sum;
}

inline double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

inline std::vector<double> difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  std::vector<double> d(a.size());
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = a[i] - b[i];
  return d;
}

inline std::vector<double> to_double(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// A value on any device in PyTorch's layout.
inline std::vector<double> torch_values(const Tensor& value, const nn::ParameterLayout& layout) {
  return to_double(checkpoint::to_torch_layout(value.to(Device::cpu()), layout).to_vector<float>());
}

// A file of this folder that make_golden.py or make_golden_resnet.py wrote.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name)
      : file_(SafetensorsFile::open(std::string(HEDDLE_GOLDEN_DIR) + "/" + name + "-golden.safetensors")) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::vector<double> floats(const std::string& name) const {
    const TensorEntry* entry = file_.find(name);
    INFO(name);
    REQUIRE(entry != nullptr);
    std::vector<double> values(entry->numel());
    if (entry->type == SafetensorsType::f64) {
      file_.read(*entry, values.data());
    } else {
      std::vector<float> f(values.size());
      file_.read_f32(*entry, f.data());
      std::copy(f.begin(), f.end(), values.begin());
    }
    return values;
  }
  // Pixels / 255 (N,H,W,C), and labels (N).
  Tensor images(const std::string& name = "images") const {
    std::vector<std::uint8_t> pixels(file_.find(name)->numel());
    file_.read(*file_.find(name), pixels.data());
    std::vector<float> values;
    for (const std::uint8_t p : pixels) values.push_back(static_cast<float>(p) / 255.f);
    return Tensor::from_values(values, Shape(file_.find(name)->shape));
  }
  Tensor labels(const std::string& name = "labels") const {
    std::vector<std::int64_t> values(file_.find(name)->numel());
    file_.read(*file_.find(name), values.data());
    return Tensor::from_values(values, {static_cast<std::int64_t>(values.size())});
  }
  const std::string& text(const std::string& name) const { return file_.metadata().at(name); }
  double option(const std::string& name) const { return std::stod(text(name)); }

 private:
  SafetensorsFile file_;
};

}  // namespace heddle::test
