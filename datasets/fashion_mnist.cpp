#include "datasets/fashion_mnist.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "datasets/idx_file.h"
#include "engine/core/file.h"

namespace heddle::datasets {
namespace {

constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";
constexpr const char* kHowToGet =
    "\nTo get Fashion-MNIST run `heddle data fetch`, or install Debian's package dataset-fashion-mnist; to use files "
    "that "
    "are elsewhere give their folder (--data-dir or $HEDDLE_DATA).";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// errno of stat, 0 if there is something.
int stat_error(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? 0 : errno;
}

struct Looked {
  IdxFileSet files;
  std::string missing;  // names joined by commas; empty if all are there
  std::string problem;  // why nothing could be found at all
};

Looked look_into(const std::string& folder) {
  Looked looked;
  looked.files.folder = folder;
  if (const int error = stat_error(folder); error != 0) {
    looked.problem = error == ENOENT ? "no such folder" : errno_text(error);
    return looked;
  }
  if (stat_error(folder + "/.") != 0) {
    looked.problem = errno == ENOTDIR ? "not a folder" : errno_text(errno);
    return looked;
  }
  for (std::size_t i = 0; i < kFashionMnistFiles.size(); ++i) {
    const std::string plain = folder + "/" + std::string(kFashionMnistFiles[i].name);
    // Anything there but "no such file" is taken, so that the reader names the trouble (no permission, a directory).
    if (stat_error(plain) != ENOENT) {
      looked.files.paths[i] = plain;
    } else if (stat_error(plain + ".gz") != ENOENT) {
      looked.files.paths[i] = plain + ".gz";
    } else {
      looked.missing += looked.missing.empty() ? "" : ", ";
      looked.missing += std::string(kFashionMnistFiles[i].name) + "[.gz]";
    }
  }
  return looked;
}

std::string line_about(const Looked& looked) {
  const std::string reason = looked.problem.empty() ? "lacks " + looked.missing : looked.problem;
  return "\n  " + looked.files.folder + ": " + reason;
}

DatasetFile describe(const IdxFile& file) {
  return {file.path, file.dims[0], file.payload_crc32, file.payload_nbytes, file.gzip};
}

ImageDataset load_part(const std::string& images_path, const std::string& labels_path, bool allow_channels) {
  // Labels first: they are small, and their errors come sooner.
  IdxFile labels = read_idx_file(labels_path, {.rank = 1});
  IdxReadOptions image_options{.rank = 3};
  if (allow_channels) image_options.rank = 0;
  IdxFile images = read_idx_file(images_path, image_options);
  if (images.dims.size() < 3) {
    throw IoError(images.path, join_text("expected images (N,H,W) or (N,H,W,C), found ", images.dims.size(), " sizes"));
  }
  if (images.dims[0] != labels.dims[0]) {
    throw IoError(images.path, join_text("holds ", images.dims[0], " images, but ", labels.path, " holds ",
                                         labels.dims[0], " labels"));
  }
  ImageDataset set;
  set.count = images.dims[0];
  set.height = images.dims[1];
  set.width = images.dims[2];
  set.channels = images.dims.size() == 4 ? images.dims[3] : 1;
  if (set.count == 0 || set.height == 0 || set.width == 0 || set.channels == 0) {
    throw IoError(images.path, join_text("holds no pixels: ", set.count, " images of ", set.height, "x", set.width, "x",
                                         set.channels));
  }
  set.files = {describe(images), describe(labels)};
  set.images = std::move(images.data);
  set.labels = std::move(labels.data);
  return set;
}

void check_labels(const ImageDataset& set, std::int64_t num_classes) {
  const auto bad = std::find_if(set.labels.begin(), set.labels.end(), [&](auto label) { return label >= num_classes; });
  if (bad == set.labels.end()) return;
  throw IoError(set.files[1].path, join_text("label ", bad - set.labels.begin(), " is ", int{*bad}, ", expected 0 to ",
                                             num_classes - 1, " for ", num_classes, " classes"));
}

ImageDatasetPair load_files(const IdxFileSet& files, bool allow_channels, std::int64_t num_classes) {
  ImageDatasetPair pair;
  pair.train = load_part(files.paths[0], files.paths[1], allow_channels);
  pair.test = load_part(files.paths[2], files.paths[3], allow_channels);
  const ImageDataset& a = pair.train;
  const ImageDataset& b = pair.test;
  if (a.height != b.height || a.width != b.width || a.channels != b.channels) {
    throw IoError(b.files[0].path,
                  join_text("holds images of ", b.height, "x", b.width, "x", b.channels, ", but ", a.files[0].path,
                            " holds images of ", a.height, "x", a.width, "x", a.channels));
  }
  if (num_classes == 0) num_classes = 1 + *std::max_element(a.labels.begin(), a.labels.end());
  check_labels(a, num_classes);
  check_labels(b, num_classes);

  pair.recognised = true;
  for (std::size_t i = 0; i < kFashionMnistFiles.size(); ++i) {
    const DatasetFile& file = (i < 2 ? a : b).files[i % 2];
    pair.recognised =
        pair.recognised && file.crc32 == kFashionMnistFiles[i].crc32 && file.nbytes == kFashionMnistFiles[i].nbytes;
  }
  pair.name = pair.recognised ? "Fashion-MNIST" : "unknown";
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < num_classes; ++i) {
    names.push_back(pair.recognised ? std::string(kFashionMnistClasses[static_cast<std::size_t>(i)])
                                    : std::to_string(i));
  }
  for (ImageDataset* set : {&pair.train, &pair.test}) {
    set->num_classes = num_classes;
    set->class_names = names;
  }
  return pair;
}

}  // namespace

std::string fashion_mnist_cache_folder() {
  std::string cache = environment("XDG_CACHE_HOME");
  // The XDG specification says that a relative value is to be ignored.
  if (cache.empty() || cache[0] != '/') {
    const std::string home = environment("HOME");
    cache = (home.empty() ? std::string("/tmp") : home) + "/.cache";
  }
  return cache + "/heddle/fashion-mnist";
}

std::vector<std::string> fashion_mnist_places() {
  std::vector<std::string> places;
  if (const std::string data = environment("HEDDLE_DATA"); !data.empty()) {
    // Not passed over: whoever sets it does not expect data from elsewhere.
    if (const int error = stat_error(data + "/."); error != 0) {
      throw IoError(data, "the environment variable HEDDLE_DATA names it, but it is no folder: " + errno_text(error));
    }
    const std::string folder = std::filesystem::absolute(data).string();
    places.push_back(folder);
    places.push_back(folder + "/fashion-mnist");
  }
  places.push_back(fashion_mnist_cache_folder());
  places.push_back(kDebianFolder);
  return places;
}

IdxFileSet find_fashion_mnist(const std::string& folder, const std::vector<std::string>& places) {
  const std::vector<std::string> looked_at = folder.empty() ? places : std::vector<std::string>{folder};
  std::string report;
  for (const std::string& place : looked_at) {
    Looked looked = look_into(place);
    if (looked.problem.empty() && looked.missing.empty()) return looked.files;
    report += line_about(looked);
  }
  const std::string subject = folder.empty() ? "Fashion-MNIST" : folder;
  throw IoError(subject, "the data set was not found; looked in:" + report + kHowToGet);
}

ImageDatasetPair load_fashion_mnist(const std::string& folder) {
  return load_files(find_fashion_mnist(folder), false, static_cast<std::int64_t>(kFashionMnistClasses.size()));
}

ImageDatasetPair load_idx_dataset(const std::string& folder, std::int64_t num_classes) {
  HEDDLE_CHECK(num_classes >= 0 && num_classes <= 256, "load_idx_dataset: num_classes is ", num_classes,
               ", expected 0 to 256");
  HEDDLE_CHECK(!folder.empty(), "load_idx_dataset: no folder given");
  return load_files(find_fashion_mnist(folder), true, num_classes);
}

}  // namespace heddle::datasets
