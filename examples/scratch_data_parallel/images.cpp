#include "images.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include <heddle/core/error.h>
#include <heddle/core/random.h>

using heddle::Tensor;

namespace {

constexpr std::int64_t kSide = 28, kClasses = 10;

// n items of item_nbytes behind a header.
std::vector<unsigned char> read_items(const std::string& path, std::int64_t header_nbytes, std::int64_t n,
                                      std::int64_t item_nbytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw heddle::IoError(path, "cannot be opened; `heddle data fetch` gets it, gunzip unpacks it");
  std::vector<unsigned char> bytes(static_cast<std::size_t>(n * item_nbytes));
  file.seekg(header_nbytes);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) {
    throw heddle::IoError(path, "has fewer than " + std::to_string(n) + " items");
  }
  return bytes;
}

}  // namespace

Images make_images(std::int64_t n) {
  heddle::Philox patterns(1), noise(2);
  std::vector<float> squares;
  for (std::int64_t i = 0; i < kClasses * 4 * 4; ++i) squares.push_back(static_cast<float>(patterns.uniform()));
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t label = i % kClasses;
    labels.push_back(label);
    for (std::int64_t y = 0; y < kSide; ++y) {
      for (std::int64_t x = 0; x < kSide; ++x) {
        const float square = squares[static_cast<std::size_t>((label * 4 + y / 7) * 4 + x / 7)];
        pixels.push_back(std::clamp(square + 0.3f * static_cast<float>(noise.normal()), 0.0f, 1.0f));
      }
    }
  }
  return {Tensor::from_values(pixels, {n, kSide, kSide, 1}), Tensor::from_values(labels, {n})};
}

Images read_fashion_mnist(const std::string& folder, std::int64_t n) {
  const std::vector<unsigned char> bytes = read_items(folder + "/train-images-idx3-ubyte", 16, n, kSide * kSide);
  const std::vector<unsigned char> classes = read_items(folder + "/train-labels-idx1-ubyte", 8, n, 1);
  std::vector<float> pixels;
  for (const unsigned char byte : bytes) pixels.push_back(static_cast<float>(byte) / 255.0f);
  return {Tensor::from_values(pixels, {n, kSide, kSide, 1}),
          Tensor::from_values(std::vector<std::int64_t>(classes.begin(), classes.end()), {n})};
}
