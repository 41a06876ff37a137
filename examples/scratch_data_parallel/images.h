// Images for the example: Fashion-MNIST's own files, or computed ones.
#pragma once

#include <cstdint>
#include <string>

#include <heddle/tensor/tensor.h>

struct Images {
  heddle::Tensor pixels;  // f32 (N,28,28,1), 0 to 1
  heddle::Tensor labels;  // i64 (N), 0 to 9
};

// n images of ten classes: each class has a pattern of 4x4 squares, an image is its pattern with noise.
Images make_images(std::int64_t n);
// The first n of train-images-idx3-ubyte and train-labels-idx1-ubyte, unpacked, in the folder. Throws: heddle::IoError.
Images read_fashion_mnist(const std::string& folder, std::int64_t n);
