// Data files: broken ones are refused before anything is written; the run says what it read.
#include <chrono>

#include "tests/support/catch.h"
#include "tests/support/gzip.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

constexpr const char* kImages = "train-images-idx3-ubyte";

// Trains on a folder whose training images were replaced, and expects a refusal that holds all parts.
void expect_refusal(const std::string& name, const std::string& content, const std::vector<std::string>& parts) {
  const TempFolder folder;
  write_small_dataset(folder.path(), 10, 10);
  std::filesystem::remove(folder / kImages);
  put_file(folder / name, content);
  const std::size_t files_before = folder.num_files();
  const ProcessResult result = heddle({"train", "--data-dir", folder.path(), "--out", folder / "run"});
  INFO(result.err);
  CHECK(result.exit_code == 1);
  CHECK(result.seconds < 5);
  CHECK(contains(result.err, folder / name));
  for (const std::string& part : parts) CHECK(contains(result.err, part));
  CHECK(folder.num_files() == files_before);
}

std::string ten_images() { return idx_header({10, 28, 28}) + noise_bytes(10 * 784); }

}  // namespace

TEST_CASE("broken data files are refused early, naming the file, and nothing is written") {
  const std::string packed = gzip(ten_images());
  std::string flipped = packed;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
  expect_refusal("train-images-idx3-ubyte.gz", "<html>" + std::string(721, ' '), {});
  expect_refusal(kImages, "", {});
  expect_refusal("train-images-idx3-ubyte.gz", packed.substr(0, packed.size() / 2), {});
  expect_refusal("train-images-idx3-ubyte.gz", flipped, {});
  expect_refusal("train-images-idx3-ubyte.gz", gzip(ten_images().substr(0, 16 + 7448)), {"7856", "7464"});
  expect_refusal(kImages, idx_header({4294967295u, 28, 28}) + noise_bytes(784), {"4294967295"});
  expect_refusal(kImages, ten_images() + "x", {});
}

TEST_CASE("a missing data set says where it was looked for and how to get it") {
  const TempFolder folder;
  const ProcessResult result = heddle({"train", "--data-dir", folder / "none", "--out", folder / "run"});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, folder / "none"));
  CHECK(contains(result.err, "heddle data fetch"));
  CHECK(folder.num_files() == 0);
}

TEST_CASE("a run names its files with items and checksums, and warns of files that are not Fashion-MNIST") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  const auto train = [&](const std::string& dataset, const std::string& out) {
    return heddle({"train", "--dataset", dataset, "--data-dir", folder.path(), "--out", folder / out, "--epochs", "1"});
  };
  const ProcessResult warned = train("fashion-mnist", "a");
  CHECK(warned.exit_code == 0);
  CHECK(contains(warned.out, (folder / kImages) + ": 64 items, crc32 "));
  CHECK(contains(warned.out, (folder / "t10k-labels-idx1-ubyte") + ": 32 items, crc32 "));
  CHECK(contains(warned.err, "warning: this is not Fashion-MNIST"));
  const ProcessResult own = train("idx", "b");
  CHECK(own.exit_code == 0);
  CHECK(own.err.empty());
  const tools::Json run = json_file(folder / "b/run.json");
  CHECK(run["data"]["files"].size() == 4);
  CHECK(run["data"]["files"][0]["items"] == 64);
  CHECK(run["data"]["files"][0]["path"] == folder / kImages);
  CHECK(contains(own.out, "crc32 " + run["data"]["files"][0]["crc32"].get<std::string>()));
}

TEST_CASE("data info and verify describe a folder") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 30, 20);
  const ProcessResult info = heddle({"data", "info", "--dataset", "idx", "--data-dir", folder.path()});
  CHECK(info.exit_code == 0);
  CHECK(contains(info.out, "training: 30 images of 28x28x1, 10 classes"));
  CHECK(contains(info.out, "test: 20 images of 28x28x1, 10 classes"));
  const ProcessResult verify = heddle({"data", "verify", "--data-dir", folder.path()});
  CHECK(verify.exit_code == 1);
  CHECK(contains(verify.out, folder / kImages));
}

}  // namespace heddle::test
