// Pictures of one's own, from the folder of PNG files to an answer.
#include <filesystem>

#include "datasets/image_file.h"
#include "tests/support/catch.h"
#include "tests/support/png_bytes.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

// Stripes, of another width in each of three classes.
void write_pictures(const std::string& folder) {
  const std::vector<std::string> names = {"Bag", "Coat", "shoe"};
  for (const auto& [part, images] : {std::pair<std::string, int>{"train", 90}, {"test", 30}}) {
    for (int i = 0; i < images; ++i) {
      const int width = 3 + 2 * (i % 3);
      std::string rows;
      for (int y = 0; y < 28; ++y) {
        rows += '\0';
        for (int x = 0; x < 28; ++x) {
          rows += static_cast<char>((x / width % 2 == 0 ? 30 : 200) + (37 * i + 11 * x + 7 * y) % 40);
        }
      }
      const std::string of_class = folder + "/" + part + "/" + names[static_cast<std::size_t>(i % 3)];
      std::filesystem::create_directories(of_class);
      put_file(of_class + "/" + std::to_string(i) + ".png", png_bytes({.width = 28, .height = 28, .rows = rows}));
    }
  }
}

}  // namespace

TEST_CASE("a folder of PNG files is trained on, evaluated with the names of its classes, and described") {
  if (!datasets::png_supported()) return;
  const TempFolder folder;
  const std::string data = folder / "data", run = folder / "run";
  write_pictures(data);
  const std::vector<std::string> flags = {"--dataset", "folder", "--data-dir", data, "--threads", "1"};
  const auto with = [&](std::vector<std::string> begin, const std::vector<std::string>& end = {}) {
    begin.insert(begin.end(), flags.begin(), flags.end());
    begin.insert(begin.end(), end.begin(), end.end());
    return heddle(begin);
  };
  const ProcessResult trained =
      with({"train"}, {"--out", run, "--epochs", "10", "--batch-size", "10", "--lr", "0.02", "--momentum", "0.9"});
  INFO(trained.err);
  REQUIRE(trained.exit_code == 0);
  CHECK(contains(trained.out, "data     " + data + "/train: 90 images, 28x28x1 in 3 classes, crc32 "));
  CHECK_FALSE(trained.out.find("Fashion") != std::string::npos);
  CHECK(json_file(run + "/run.json")["classes"] == tools::Json({"Bag", "Coat", "shoe"}));

  const ProcessResult evaluated = heddle({"eval", "--checkpoint", run, "--json"});
  REQUIRE(evaluated.exit_code == 0);
  const tools::Json result = tools::Json::parse(evaluated.out);
  CHECK(result["classes"][2]["name"] == "shoe");
  CHECK(result["accuracy"] == tools::Json::parse(metrics_of(run).back())["test_accuracy"]);
  CHECK(result["accuracy"].get<double>() > 0.9);

  const std::string picture = std::filesystem::directory_iterator(data + "/test/shoe")->path().string();
  const ProcessResult predicted = heddle({"predict", "--checkpoint", run, picture});
  INFO(predicted.err);
  CHECK(predicted.exit_code == 0);
  for (const char* const name : {"Bag", "Coat", "shoe"}) CHECK(contains(predicted.out, name));

  const ProcessResult info = heddle({"data", "info", "--dataset", "folder", "--data-dir", data});
  CHECK(info.exit_code == 0);
  CHECK(contains(info.out, "training: 90 images of 28x28x1, 3 classes"));
  CHECK(contains(info.out, "2  shoe"));

  // Other classes under the same numbers would be judged wrong.
  std::filesystem::rename(data + "/train/Coat", data + "/train/Jacket");
  std::filesystem::rename(data + "/test/Coat", data + "/test/Jacket");
  const ProcessResult other = heddle({"eval", "--checkpoint", run});
  CHECK(other.exit_code == 2);
  CHECK(contains(other.err, "class 1 is 'Jacket', the model's is 'Coat'"));
  const ProcessResult resumed = heddle({"train", "--resume", run, "--epochs", "7"});
  CHECK(resumed.exit_code == 2);
  CHECK(contains(resumed.err, "the data files are not those of the run"));

  put_file(data + "/train/shoe/zz.png", "no picture");
  const ProcessResult broken = with({"train"}, {"--out", folder / "none"});
  CHECK(broken.exit_code == 1);
  CHECK(contains(broken.err, data + "/train/shoe/zz.png: is no PNG image"));
  CHECK_FALSE(file_exists(folder / "none"));
}

TEST_CASE("a run on a folder with images of several sizes is evaluated with the size of its training") {
  if (!datasets::png_supported()) return;
  const TempFolder folder;
  const std::string data = folder / "data";
  write_pictures(data);
  for (const bool mixed : {false, true}) {
    if (mixed) put_file(data + "/train/Bag/wide.png", png_bytes({.width = 40, .height = 20}));
    if (mixed) put_file(data + "/test/Bag/small.png", png_bytes({.width = 9, .height = 9}));
    const std::string run = folder / (mixed ? "mixed" : "alike");
    const ProcessResult trained = heddle({"train", "--dataset", "folder", "--data-dir", data, "--threads", "1",
                                          "--image-size", "32", "--out", run, "--epochs", "1", "--batch-size", "10"});
    INFO(trained.err);
    REQUIRE(trained.exit_code == 0);
    const ProcessResult evaluated = heddle({"eval", "--checkpoint", run, "--json"});
    INFO(evaluated.err);
    REQUIRE(evaluated.exit_code == 0);
    const tools::Json result = tools::Json::parse(evaluated.out), logged = tools::Json::parse(metrics_of(run).back());
    CHECK(result["samples"] == (mixed ? 31 : 30));
    CHECK(result["accuracy"] == logged["test_accuracy"]);
    CHECK(result["loss"] == logged["test_loss"]);
  }
}

TEST_CASE("a folder of PNG files needs its place") {
  const ProcessResult result = heddle({"train", "--dataset", "folder"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "--dataset folder needs --data-dir DIR with train/CLASS/*.png and test/CLASS/*.png"));
}

}  // namespace heddle::test
