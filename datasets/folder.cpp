#include "datasets/folder.h"

#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "datasets/alpha.h"
#include "datasets/image_file.h"
#include "engine/core/file.h"
#include "engine/core/text.h"

namespace heddle::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxSide = 4096;
constexpr std::size_t kMaxClasses = 256;  // a label is a byte
constexpr std::uint64_t kMaxPixelNbytes = std::uint64_t{64} << 30;
constexpr std::uint64_t kMaxFileNbytes = std::uint64_t{256} << 20;

// Names in a folder without the hidden ones, sorted by bytes.
std::vector<std::string> list(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::string name = entries->path().filename().string();
    if (!name.starts_with('.')) names.push_back(std::move(name));
  }
  if (error) throw IoError(folder, "cannot be read as a folder: " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// Of what a link points to.
fs::file_type type_of(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) throw IoError(path, "is a link to nothing");
  if (error) throw IoError(path, error.message());
  return type;
}

bool ends_as_png(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.size() > 4 && name.ends_with(".png");
}

std::vector<std::string> list_classes(const std::string& part) {
  std::vector<std::string> classes = list(part);
  for (const std::string& name : classes) {
    const std::string path = part + "/" + name;
    if (type_of(path) != fs::file_type::directory) {
      throw IoError(path, "is no folder; images of a class lie in a folder with its name");
    }
    const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (std::any_of(name.begin(), name.end(), is_control)) {
      throw IoError(part, "holds a folder with a control character in its name");
    }
  }
  if (classes.empty()) throw IoError(part, "holds no folders; each class needs one with its images");
  if (classes.size() > kMaxClasses) {
    throw IoError(part,
                  join_text("holds ", classes.size(), " folders; at most ", kMaxClasses, " classes are possible"));
  }
  return classes;
}

void check_same_classes(const std::string& train, const std::vector<std::string>& of_train, const std::string& test,
                        const std::vector<std::string>& of_test) {
  const auto check = [](const std::string& lacking, const std::vector<std::string>& has, const std::string& other,
                        const std::vector<std::string>& wanted) {
    for (const std::string& name : wanted) {
      if (std::binary_search(has.begin(), has.end(), name)) continue;
      throw IoError(lacking, join_text("lacks the class '", name, "', which ", other, " has"));
    }
  };
  check(test, of_test, train, of_train);
  check(train, of_train, test, of_test);
}

// One image file and its class.
struct Item {
  std::string name;  // below the part: "CLASS/FILE"
  std::uint8_t label;
};

std::vector<Item> list_items(const std::string& part, const std::vector<std::string>& classes, bool may_be_empty) {
  std::vector<Item> items;
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const std::size_t before = items.size();
    for (const std::string& file : list(part + "/" + classes[label])) {
      std::string name = classes[label] + "/" + file;
      const std::string path = part + "/" + name;
      if (type_of(path) == fs::file_type::directory) throw IoError(path, "is a folder inside the folder of a class");
      if (!ends_as_png(file)) throw IoError(path, "is no .png file; only those may be in the folder of a class");
      items.push_back({std::move(name), static_cast<std::uint8_t>(label)});
    }
    if (items.size() == before && !may_be_empty) throw IoError(part + "/" + classes[label], "holds no images");
  }
  if (items.empty()) throw IoError(part, "holds no images");
  return items;
}

// Reads one part after the other; the first image of all says what the others must be like.
class Reader {
 public:
  explicit Reader(const FolderOptions& options) : options_(options) {}

  ImageDataset read(const std::string& part, const std::vector<std::string>& classes, const std::vector<Item>& items) {
    ImageDataset set;
    set.count = static_cast<std::int64_t>(items.size());
    set.num_classes = static_cast<std::int64_t>(classes.size());
    set.class_names = classes;
    DatasetFile all{.path = part, .items = set.count};
    uLong crc = ::crc32(0L, Z_NULL, 0);
    const auto add = [&](const std::string& bytes) {
      crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    };
    for (const Item& item : items) {
      const std::string path = part + "/" + item.name;
      const std::string content = read_file(path, kMaxFileNbytes);
      add(item.name);
      add(content);
      all.nbytes += content.size();
      const Image image = read_image(path, content);
      if (set.images.empty()) {
        const std::uint64_t nbytes = image.pixels.size() * items.size();
        if (nbytes > kMaxPixelNbytes) {
          throw IoError(part, join_text("holds ", items.size(), " images of ", size_text(image), ", ", nbytes,
                                        " bytes in memory; the limit is ", kMaxPixelNbytes));
        }
        set.images.reserve(static_cast<std::size_t>(nbytes));
      }
      set.images.insert(set.images.end(), image.pixels.begin(), image.pixels.end());
      set.labels.push_back(item.label);
    }
    all.crc32 = static_cast<std::uint32_t>(crc);
    set.height = height_;
    set.width = width_;
    set.channels = channels_;
    set.files = {all};
    return set;
  }

 private:
  static std::string size_text(const Image& image) {
    return join_text(image.height, "x", image.width, "x", image.channels);
  }

  Image read_image(const std::string& path, const std::string& content) {
    const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
    Image image = without_alpha(parse_png(bytes, path, {.max_pixels = kMaxSide * kMaxSide}));
    if (options_.image_size > 0) image = resize(image, options_.image_size, options_.image_size);
    if (image.height > kMaxSide || image.width > kMaxSide) {
      throw IoError(path, join_text("has ", image.height, " rows and ", image.width, " columns; at most ", kMaxSide,
                                    " are possible"));
    }
    if (first_path_.empty()) {
      first_path_ = path;
      height_ = image.height;
      width_ = image.width;
      channels_ = image.channels;
    }
    if (image.channels != channels_) {
      throw IoError(path, join_text("is ", kind(image.channels), ", but ", first_path_, " is ", kind(channels_),
                                    "; all images must be grey, or all RGB"));
    }
    if (image.height != height_ || image.width != width_) {
      throw IoError(path, join_text("is ", image.height, "x", image.width, ", but ", first_path_, " is ", height_, "x",
                                    width_, "; all images must have one size, or --image-size N brings them to one"));
    }
    return image;
  }

  static const char* kind(std::int64_t channels) { return channels == 1 ? "grey" : "RGB"; }

  FolderOptions options_;
  std::string first_path_;
  std::int64_t height_ = 0, width_ = 0, channels_ = 0;
};

}  // namespace

ImageDatasetPair load_folder_dataset(const std::string& folder, const FolderOptions& options) {
  const std::string train = folder + "/train", test = folder + "/test";
  const std::vector<std::string> classes = list_classes(train);
  check_same_classes(train, classes, test, list_classes(test));
  // Names first: what is wrong with them shows before thousands of images are read.
  const std::vector<Item> train_items = list_items(train, classes, false), test_items = list_items(test, classes, true);
  Reader reader(options);
  ImageDatasetPair pair;
  pair.train = reader.read(train, classes, train_items);
  pair.test = reader.read(test, classes, test_items);
  pair.name = folder;
  return pair;
}

}  // namespace heddle::datasets
