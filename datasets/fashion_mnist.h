// Finds and loads Fashion-MNIST, and any other set in four IDX files of the same names.
// Used by the list of data sets and by `heddle data`; knows nothing of loaders and tensors.
// Source: https://github.com/zalandoresearch/fashion-mnist
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/image_dataset.h"

namespace heddle::datasets {

// One of the four published files. The checksum is of the unpacked content, since distributions pack anew.
struct KnownFile {
  std::string_view name;  // without ".gz"
  std::uint32_t crc32;
  std::uint64_t nbytes;
};

// Training images, training labels, test images, test labels.
inline constexpr std::array<KnownFile, 4> kFashionMnistFiles{{
    {"train-images-idx3-ubyte", 0xb4f29f28u, 47040016},
    {"train-labels-idx1-ubyte", 0x741a4657u, 60008},
    {"t10k-images-idx3-ubyte", 0x678fe0b1u, 7840016},
    {"t10k-labels-idx1-ubyte", 0x80142c1fu, 10008},
}};

inline constexpr std::array<std::string_view, 10> kFashionMnistClasses{
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"};

// The paths of the four files, in the order of kFashionMnistFiles.
struct IdxFileSet {
  std::string folder;
  std::array<std::string, 4> paths;
};

// Where `heddle data fetch` puts the files: ${XDG_CACHE_HOME:-~/.cache}/heddle/fashion-mnist.
std::string fashion_mnist_cache_folder();

// The folders that are searched when none is given: $HEDDLE_DATA, $HEDDLE_DATA/fashion-mnist, the cache folder, and the
// folder of Debian's package dataset-fashion-mnist. Throws: IoError if $HEDDLE_DATA is set and no folder.
std::vector<std::string> fashion_mnist_places();

// Finds the four files, with or without ".gz". With a folder given only that one is looked at; otherwise the first of
// `places` that has all four. Throws: IoError with every place looked at, what is missing there and how to get the
// data.
IdxFileSet find_fashion_mnist(const std::string& folder = {},
                              const std::vector<std::string>& places = fashion_mnist_places());

// Loads and checks Fashion-MNIST: 28x28 grey images, ten classes. Other well-formed files under the same names (digit
// MNIST) load too, with recognised = false, name "unknown" and class names "0" to "9": the caller warns.
// Throws: IoError as read_idx_file does; also if counts of images and labels differ or a label is out of range.
ImageDatasetPair load_fashion_mnist(const std::string& folder = {});

// Loads any set in four files of those names from a folder: images (N,H,W) or (N,H,W,C), labels (N).
// num_classes 0 takes the largest training label + 1. Throws: as load_fashion_mnist.
ImageDatasetPair load_idx_dataset(const std::string& folder, std::int64_t num_classes = 0);

}  // namespace heddle::datasets
