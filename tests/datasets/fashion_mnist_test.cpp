// Case C02: the run says which data it used. Also where the files are looked for.
#include "datasets/fashion_mnist.h"

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "datasets/unpacked_reader.h"
#include "engine/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/gzip.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::datasets;
using namespace heddle::test;

namespace {

std::string labels(std::uint32_t n, std::uint32_t num_classes = 10) {
  std::string text = idx_header({n});
  for (std::uint32_t i = 0; i < n; ++i) text += static_cast<char>(i % num_classes);
  return text;
}

std::string images(std::uint32_t n, std::uint32_t height = 28, std::uint32_t width = 28) {
  return idx_header({n, height, width}) + noise_bytes(n * height * width, n);
}

void put_small_set(const std::string& folder, const std::string& ending = "") {
  const auto pack = [&](const std::string& content) { return ending.empty() ? content : gzip(content); };
  std::filesystem::create_directories(folder);
  put_file(folder + "/train-images-idx3-ubyte" + ending, pack(images(20)));
  put_file(folder + "/train-labels-idx1-ubyte" + ending, pack(labels(20)));
  put_file(folder + "/t10k-images-idx3-ubyte" + ending, pack(images(10)));
  put_file(folder + "/t10k-labels-idx1-ubyte" + ending, pack(labels(10)));
}

// Sets an environment variable and puts the old value back.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace

TEST_CASE("a small set under the names of Fashion-MNIST loads and is not taken for it") {
  const TempFolder folder;
  const std::string ending = GENERATE("", ".gz");
  put_small_set(folder.path(), ending);
  const ImageDatasetPair pair = load_fashion_mnist(folder.path());
  CHECK_FALSE(pair.recognised);
  CHECK(pair.name == "unknown");
  CHECK(pair.train.count == 20);
  CHECK(pair.test.count == 10);
  CHECK(pair.train.height == 28);
  CHECK(pair.train.width == 28);
  CHECK(pair.train.channels == 1);
  CHECK(pair.train.num_classes == 10);
  CHECK(pair.train.class_names.size() == 10);
  CHECK(pair.train.class_names[3] == "3");
  CHECK(pair.train.images.size() == 20 * 784);
  CHECK(pair.train.images == to_bytes(images(20).substr(16)));
  CHECK(pair.train.labels[13] == 3);
  REQUIRE(pair.test.files.size() == 2);
  const DatasetFile& file = pair.test.files[0];
  CHECK(file.path == (folder / "t10k-images-idx3-ubyte") + ending);
  CHECK(file.items == 10);
  CHECK(file.nbytes == 16 + 7840);
  CHECK(file.crc32 == crc32_of(to_bytes(images(10))));
  CHECK(file.gzip == !ending.empty());
}

TEST_CASE("the published Fashion-MNIST is recognised") {
  IdxFileSet files;
  try {
    files = find_fashion_mnist();
  } catch (const IoError&) {
    WARN("skipped: Fashion-MNIST is not on this machine");
    return;
  }
  const ImageDatasetPair pair = load_fashion_mnist(files.folder);
  if (!pair.recognised) {
    WARN("skipped: " << files.folder << " holds something else");
    return;
  }
  CHECK(pair.name == "Fashion-MNIST");
  CHECK(pair.train.count == 60000);
  CHECK(pair.test.count == 10000);
  CHECK(pair.train.class_names[9] == "Ankle boot");
  CHECK(pair.train.labels[0] == 9);
  CHECK(pair.train.files[0].crc32 == 0xb4f29f28u);
  CHECK(pair.train.files[1].crc32 == 0x741a4657u);
  CHECK(pair.test.files[0].crc32 == 0x678fe0b1u);
  CHECK(pair.test.files[1].crc32 == 0x80142c1fu);
}

TEST_CASE("counts of images and labels must agree, and both files are named") {
  const TempFolder folder;
  put_small_set(folder.path());
  put_file(folder / "train-labels-idx1-ubyte", labels(19));
  CHECK(message_of<IoError>([&] { load_fashion_mnist(folder.path()); }) ==
        (folder / "train-images-idx3-ubyte") + ": holds 20 images, but " + (folder / "train-labels-idx1-ubyte") +
            " holds 19 labels");
}

TEST_CASE("a label out of range is refused with its place and value") {
  const TempFolder folder;
  put_small_set(folder.path());
  put_file(folder / "t10k-labels-idx1-ubyte",
           labels(10, 11).substr(0, 8) + std::string("\0\1\2\3\4\x0b\6\7\x08\x09", 10));
  CHECK(message_of<IoError>([&] { load_fashion_mnist(folder.path()); }) ==
        (folder / "t10k-labels-idx1-ubyte") + ": label 5 is 11, expected 0 to 9 for 10 classes");
}

TEST_CASE("sets of other sizes load as idx, and training and test images must fit") {
  const TempFolder folder;
  put_small_set(folder.path());
  put_file(folder / "train-images-idx3-ubyte", images(20, 5, 7));
  contains(message_of<IoError>([&] { load_idx_dataset(folder.path()); }), "holds images of 28x28x1, but");
  put_file(folder / "t10k-images-idx3-ubyte", images(10, 5, 7));
  CHECK(load_idx_dataset(folder.path()).train.width == 7);
  CHECK(load_idx_dataset(folder.path(), 200).train.class_names.size() == 200);
  put_file(folder / "train-images-idx3-ubyte", idx_header({20, 2, 3, 3}) + noise_bytes(360));
  put_file(folder / "t10k-images-idx3-ubyte", idx_header({10, 2, 3, 3}) + noise_bytes(180));
  const ImageDatasetPair pair = load_idx_dataset(folder.path());
  CHECK(pair.train.channels == 3);
  CHECK(pair.train.num_classes == 10);
  contains(message_of<IoError>([&] { load_idx_dataset(folder.path(), 5); }), "label 5 is 5, expected 0 to 4");
  put_file(folder / "train-images-idx3-ubyte", labels(20));
  contains(message_of<IoError>([&] { load_idx_dataset(folder.path()); }), "expected images (N,H,W) or (N,H,W,C)");
  put_file(folder / "train-images-idx3-ubyte", images(0));
  put_file(folder / "train-labels-idx1-ubyte", labels(0));
  contains(message_of<IoError>([&] { load_idx_dataset(folder.path()); }), "holds no pixels");
}

TEST_CASE("a folder that is given is the only one looked at") {
  const TempFolder folder;
  put_small_set(folder / "good");
  const Environment data("HEDDLE_DATA", (folder / "good").c_str());
  std::filesystem::create_directory(folder / "empty");
  const std::string text = message_of<IoError>([&] { load_fashion_mnist(folder / "empty"); });
  contains(text, (folder / "empty") + ": lacks train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], ");
  contains(text, "heddle data fetch");
  contains(text, "dataset-fashion-mnist");
  CHECK(text.find(folder / "good") == std::string::npos);
  contains(message_of<IoError>([&] { load_fashion_mnist(folder / "none"); }), "no such folder");
  put_file(folder / "file", "");
  contains(message_of<IoError>([&] { load_fashion_mnist(folder / "file"); }), "not a folder");
  std::filesystem::remove(folder / "good/t10k-labels-idx1-ubyte");
  contains(message_of<IoError>([&] { load_fashion_mnist(folder / "good"); }), ": lacks t10k-labels-idx1-ubyte[.gz]\n");
}

TEST_CASE("without a folder the places are searched in order") {
  const TempFolder folder;
  const Environment data("HEDDLE_DATA", (folder / "data").c_str());
  CHECK(message_of<IoError>([] { find_fashion_mnist(); }) ==
        (folder / "data") +
            ": the environment variable HEDDLE_DATA names it, but it is no folder: No such file or "
            "directory");
  std::filesystem::create_directory(folder / "data");
  const Environment cache("XDG_CACHE_HOME", (folder / "cache").c_str());
  const std::vector<std::string> places = fashion_mnist_places();
  REQUIRE(places.size() == 4);
  CHECK(places[0] == folder / "data");
  CHECK(places[1] == folder / "data/fashion-mnist");
  CHECK(places[2] == folder / "cache/heddle/fashion-mnist");
  CHECK(places[3] == "/usr/share/datasets/fashion-mnist");
  put_small_set(folder / "cache/heddle/fashion-mnist");
  CHECK(find_fashion_mnist().folder == places[2]);
  put_small_set(folder / "data/fashion-mnist", ".gz");
  CHECK(find_fashion_mnist().folder == places[1]);
  CHECK(find_fashion_mnist().paths[0] == folder / "data/fashion-mnist/train-images-idx3-ubyte.gz");
  put_small_set(folder / "data");
  CHECK(find_fashion_mnist().folder == places[0]);

  const std::string text = message_of<IoError>([&] { find_fashion_mnist("", {folder / "x", folder / "y"}); });
  contains(text, "\n  " + (folder / "x") + ": no such folder\n  " + (folder / "y") + ": no such folder\n");
}

TEST_CASE("the cache folder follows the XDG rules") {
  const Environment home("HOME", "/home/someone");
  {
    const Environment cache("XDG_CACHE_HOME", nullptr);
    CHECK(fashion_mnist_cache_folder() == "/home/someone/.cache/heddle/fashion-mnist");
  }
  const Environment cache("XDG_CACHE_HOME", "relative");
  CHECK(fashion_mnist_cache_folder() == "/home/someone/.cache/heddle/fashion-mnist");
}
