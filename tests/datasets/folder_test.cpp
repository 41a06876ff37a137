// PNG files in folders as a data set: the order of classes and images, what is passed over, and everything that is
// refused with the path of what is wrong.
#include "datasets/folder.h"

#include <sys/stat.h>

#include <filesystem>

#include "datasets/alpha.h"
#include "engine/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/png_bytes.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::datasets;
using namespace heddle::test;

namespace {

namespace fs = std::filesystem;

// A grey image of 2x2 whose pixels have one value.
std::string grey(int value, std::uint32_t size = 2) {
  std::string rows;
  for (std::uint32_t y = 0; y < size; ++y) rows += '\0' + std::string(size, static_cast<char>(value));
  return png_bytes({.width = size, .height = size, .rows = rows});
}

std::string coloured(int colour, const std::string& pixel) {
  std::string rows;
  for (int y = 0; y < 2; ++y) rows += '\0' + pixel + pixel;
  return png_bytes({.width = 2, .height = 2, .colour = colour, .rows = rows});
}

void put(const TempFolder& folder, const std::string& name, const std::string& content) {
  fs::create_directories(fs::path(folder / name).parent_path());
  put_file(folder / name, content);
}

// Two classes; names that sort by bytes.
void write_good(const TempFolder& folder) {
  put(folder, "train/b/2.png", grey(20));
  put(folder, "train/b/10.png", grey(10));
  put(folder, "train/Z/x.PNG", grey(30));
  put(folder, "test/b/1.png", grey(40));
  put(folder, "test/Z/1.png", grey(50));
}

std::string refusal(const TempFolder& folder) {
  return message_of<IoError>([&] { load_folder_dataset(folder.path()); });
}

}  // namespace

TEST_CASE("classes and images come in the order of their names, hidden ones are passed over") {
  const TempFolder folder;
  write_good(folder);
  put(folder, "train/.cache/1.png", "no image");
  put(folder, "train/b/.hidden.png", "no image");
  put(folder, "train/.hidden", "no folder");
  const ImageDatasetPair pair = load_folder_dataset(folder.path());
  const ImageDataset& train = pair.train;
  CHECK(train.class_names == std::vector<std::string>{"Z", "b"});
  CHECK(train.num_classes == 2);
  CHECK(train.count == 3);
  CHECK((train.height == 2 && train.width == 2 && train.channels == 1));
  CHECK(train.labels == std::vector<std::uint8_t>{0, 1, 1});
  CHECK(train.images == std::vector<std::uint8_t>{30, 30, 30, 30, 10, 10, 10, 10, 20, 20, 20, 20});
  CHECK(pair.test.labels == std::vector<std::uint8_t>{0, 1});
  CHECK(pair.test.images[0] == 50);
  CHECK(pair.test.class_names == train.class_names);
  REQUIRE(train.files.size() == 1);
  CHECK(train.files[0].path == folder / "train");
  CHECK(train.files[0].items == 3);
  CHECK(train.files[0].nbytes == grey(30).size() + grey(10).size() + grey(20).size());
  CHECK_FALSE(pair.recognised);

  // Names and contents are in the checksum.
  const std::uint32_t before = train.files[0].crc32;
  CHECK(load_folder_dataset(folder.path()).train.files[0].crc32 == before);
  fs::rename(folder / "train/b/10.png", folder / "train/b/11.png");
  const std::uint32_t renamed = load_folder_dataset(folder.path()).train.files[0].crc32;
  CHECK(renamed != before);
  put(folder, "train/b/11.png", grey(11));
  CHECK(load_folder_dataset(folder.path()).train.files[0].crc32 != renamed);
}

TEST_CASE("links to images, to classes and to parts are followed, one to nothing is an error") {
  const TempFolder folder, elsewhere;
  put(elsewhere, "set/a/1.png", grey(7));
  put(elsewhere, "image.png", grey(8));
  fs::create_directories(folder / "train");
  fs::create_directory_symlink(elsewhere / "set", folder / "test");
  fs::create_directory_symlink(elsewhere / "set/a", folder / "train/a");
  fs::create_symlink(elsewhere / "image.png", elsewhere / "set/a/2.png");
  const ImageDatasetPair pair = load_folder_dataset(folder.path());
  CHECK(pair.train.count == 2);
  CHECK(pair.train.images[4] == 8);
  CHECK(pair.test.images == pair.train.images);
  // A link that leads back to itself.
  fs::create_directory_symlink(folder / "train", elsewhere / "set/a/loop.png");
  CHECK(refusal(folder) == folder / "train/a/loop.png" + ": is a folder inside the folder of a class");
  fs::remove(elsewhere / "set/a/loop.png");
  fs::create_symlink(folder / "none", elsewhere / "set/a/3.png");
  CHECK(refusal(folder) == folder / "train/a/3.png" + ": is a link to nothing");
}

TEST_CASE("colours: RGB, alpha over black, palettes; grey and RGB do not mix") {
  const TempFolder folder;
  put(folder, "train/a/1.png", coloured(2, "\x0a\x14\x1e"));
  put(folder, "train/a/2.png", coloured(6, std::string("\x64\xc8\xff\x80", 4)));
  put(folder, "test/a/1.png", coloured(2, "\x01\x02\x03"));
  const ImageDatasetPair pair = load_folder_dataset(folder.path());
  CHECK(pair.train.channels == 3);
  CHECK(std::vector<std::uint8_t>(pair.train.images.begin(), pair.train.images.begin() + 3) ==
        std::vector<std::uint8_t>{10, 20, 30});
  // 128/255 of 100, 200 and 255.
  CHECK(std::vector<std::uint8_t>(pair.train.images.begin() + 12, pair.train.images.begin() + 15) ==
        std::vector<std::uint8_t>{50, 100, 128});
  put(folder, "test/a/2.png", coloured(4, std::string("\x64\xff", 2)));
  CHECK(refusal(folder) == folder / "test/a/2.png" + ": is grey, but " + folder / "train/a/1.png" +
                               " is RGB; all images must be grey, or all RGB");
}

TEST_CASE("images of another size are refused with both names, or brought to one size") {
  const TempFolder folder;
  write_good(folder);
  put(folder, "train/b/3.png", grey(60, 4));
  CHECK(refusal(folder) == folder / "train/b/3.png" + ": is 4x4, but " + folder / "train/Z/x.PNG" +
                               " is 2x2; all images must have one size, or --image-size N brings them to one");
  const ImageDatasetPair pair = load_folder_dataset(folder.path(), {.image_size = 3});
  CHECK((pair.train.height == 3 && pair.train.width == 3));
  CHECK(pair.train.images.size() == 4 * 9);
  CHECK(pair.train.images.back() == 60);
  put(folder, "train/b/3.png", png_bytes({.width = 4097, .height = 1}));
  CHECK(contains(refusal(folder), "has 1 rows and 4097 columns; at most 4096 are possible"));
}

TEST_CASE("what is missing or is no image is an error with its path") {
  const auto check = [](const std::string& path, const std::string& reason, auto change) {
    const TempFolder folder;
    write_good(folder);
    change(folder);
    const std::string message = refusal(folder);
    INFO(message);
    CHECK(message.starts_with((path.empty() ? folder.path() : folder / path) + ": " + reason));
  };
  check("train", "cannot be read as a folder", [](const TempFolder& f) { fs::remove_all(f / "train"); });
  check("test", "cannot be read as a folder", [](const TempFolder& f) { fs::remove_all(f / "test"); });
  check("test", "lacks the class 'Z', which ", [](const TempFolder& f) { fs::remove_all(f / "test/Z"); });
  check("train", "lacks the class 'c', which ", [](const TempFolder& f) { put(f, "test/c/1.png", grey(1)); });
  check("train/b", "holds no images", [](const TempFolder& f) {
    fs::remove(f / "train/b/2.png");
    fs::remove(f / "train/b/10.png");
  });
  check("train/readme.txt", "is no folder", [](const TempFolder& f) { put(f, "train/readme.txt", "x"); });
  check("train/b/list.csv", "is no .png file", [](const TempFolder& f) { put(f, "train/b/list.csv", "x"); });
  check("train/b/more", "is a folder inside", [](const TempFolder& f) { put(f, "train/b/more/1.png", grey(1)); });
  check("train/b/2.png", "is no PNG image", [](const TempFolder& f) { put(f, "train/b/2.png", "x"); });
  check("train/b/2.png", "is a broken PNG",
        [](const TempFolder& f) { put(f, "train/b/2.png", grey(1).substr(0, 50)); });
  check("train/b/2.png", "is a pipe, expected a file", [](const TempFolder& f) {
    fs::remove(f / "train/b/2.png");
    REQUIRE(::mkfifo((f / "train/b/2.png").c_str(), 0600) == 0);
  });
  check("train", "holds a folder with a control character", [](const TempFolder& f) {
    put(f, "train/\x1b[2J/1.png", grey(1));
    put(f, "test/\x1b[2J/1.png", grey(1));
  });
  check("train", "holds 258 folders; at most 256", [](const TempFolder& f) {
    for (int i = 0; i < 256; ++i) fs::create_directory(f / ("train/" + std::to_string(1000 + i)));
  });
}

TEST_CASE("a class of which there is no test image is one all the same") {
  const TempFolder folder;
  write_good(folder);
  fs::remove(folder / "test/Z/1.png");
  const ImageDatasetPair pair = load_folder_dataset(folder.path());
  CHECK(pair.test.labels == std::vector<std::uint8_t>{1});
  CHECK(pair.test.num_classes == 2);
  fs::remove(folder / "test/b/1.png");
  CHECK(refusal(folder) == folder / "test" + ": holds no images");
}
