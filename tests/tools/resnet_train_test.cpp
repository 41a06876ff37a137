// The program with ResNets: trainings from begin to end, and images of another size or number of channels.
#include "tests/support/catch.h"
#include "tests/support/png_bytes.h"
#include "tests/tools/program.h"

#include "datasets/image_file.h"

namespace heddle::test {
namespace {

// One whole run, stopped and resumed ones compare with it.
struct Data {
  TempFolder folder;
  Data() { write_small_dataset(folder.path(), 128, 64); }
  std::vector<std::string> training(const std::string& out, std::vector<std::string> more) const {
    return small_training(folder.path(), folder / out, std::move(more));
  }
};

double number_after(const std::string& text, const std::string& label) {
  const std::size_t at = text.find(label);
  REQUIRE(at != std::string::npos);
  return std::stod(text.substr(at + label.size()));
}

}  // namespace

TEST_CASE("resnet18 trains, is evaluated, says what it sees, and a resumed run ends with the same weights") {
  const Data data;
  const ProcessResult whole = heddle(data.training("whole", {"--model", "resnet18", "--epochs", "4", "--lr", "0.01"}));
  INFO(whole.out << whole.err);
  REQUIRE(whole.exit_code == 0);
  CHECK(contains(whole.out, "model    resnet18, 11178378 parameters"));
  const std::vector<std::string> metrics = metrics_of(data.folder / "whole");
  REQUIRE(metrics.size() == 4);
  const double first = number_after(metrics.front(), "\"train_loss\":");
  CHECK(number_after(metrics.back(), "\"train_loss\":") < 0.7 * first);

  const ProcessResult eval = heddle({"eval", "--json", "--checkpoint", data.folder / "whole"});
  REQUIRE(eval.exit_code == 0);
  CHECK(tools::Json::parse(eval.out)["loss"] == tools::Json::parse(metrics.back())["test_loss"]);
  const ProcessResult predict = heddle(
      {"predict", "--checkpoint", data.folder / "whole", data.folder / "t10k-images-idx3-ubyte", "--range", "3"});
  CHECK(predict.exit_code == 0);
  CHECK(contains(predict.out, "t10k-images-idx3-ubyte[3]:  "));

  REQUIRE(heddle(data.training("part", {"--model", "resnet18", "--epochs", "2", "--lr", "0.01"})).exit_code == 0);
  REQUIRE(heddle({"train", "--resume", data.folder / "part", "--epochs", "4"}).exit_code == 0);
  CHECK(metrics_of(data.folder / "part") == metrics);
  CHECK(weights_of(data.folder / "part") == weights_of(data.folder / "whole"));
}

TEST_CASE("a last batch of one image, of which resnet18's last maps hold one value, is refused before the training") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 65, 10);
  const auto train = [&](const std::string& model, const std::string& batch_size) {
    return heddle(small_training(folder.path(), folder / (model + batch_size),
                                 {"--model", model, "--batch-size", batch_size, "--epochs", "1"}));
  };
  const ProcessResult refused = train("resnet18", "64");
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  CHECK(
      contains(refused.err, "--batch-size 64: batches of 64 of the 65 images, the last one of 1, leave a pass of one"));
  CHECK(contains(refused.err, "layer4.0.bn1"));
  CHECK_FALSE(file_exists(folder / "resnet1864"));
  CHECK(train("resnet18", "33").exit_code == 0);
  // The 3x3 stem leaves maps of 4x4.
  CHECK(train("resnet18-cifar", "64").exit_code == 0);
}

TEST_CASE("--image-size resizes the images of a training, and eval and predict know it from the checkpoint") {
  const Data data;
  const std::string run = data.folder / "run";
  const ProcessResult result = heddle(data.training("run", {"--image-size", "40", "--epochs", "2"}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  // The first linear layer of LeNet at 40 pixels has 7*7*16 columns instead of 4*4*16.
  CHECK(contains(result.out, "model    lenet, " + std::to_string(44426 + (49 - 16) * 16 * 120) + " parameters"));
  const ProcessResult eval = heddle({"eval", "--json", "--checkpoint", run});
  INFO(eval.err);
  REQUIRE(eval.exit_code == 0);
  CHECK(tools::Json::parse(eval.out)["loss"] == tools::Json::parse(metrics_of(run).back())["test_loss"]);
  const ProcessResult predict =
      heddle({"predict", "--checkpoint", run, data.folder / "t10k-images-idx3-ubyte", "--range", "3"});
  CHECK(predict.exit_code == 0);
  CHECK(contains(predict.err, "resized from 28x28 to 40x40"));

  const ProcessResult changed = heddle({"train", "--resume", run, "--image-size", "28"});
  CHECK(changed.exit_code == 2);
  CHECK(contains(changed.err, "--image-size 28 (the run has 40)"));
  const ProcessResult small = heddle(data.training("small", {"--image-size", "8"}));
  CHECK(small.exit_code != 0);
  CHECK(contains(small.err, "images of 8x8 are too small, it needs at least 16x16"));
  CHECK_FALSE(file_exists(data.folder / "small"));
}

TEST_CASE("torchvision's ResNet trains on grey images, of which it sees three equal channels") {
  const Data data;
  const std::string run = data.folder / "run";
  const ProcessResult result =
      heddle(data.training("run", {"--model", "resnet18-tv", "--image-size", "16", "--epochs", "1"}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "model    resnet18-tv, 11181642 parameters"));
  const ProcessResult eval = heddle({"eval", "--json", "--checkpoint", run});
  INFO(eval.err);
  REQUIRE(eval.exit_code == 0);
  CHECK(tools::Json::parse(eval.out)["loss"] == tools::Json::parse(metrics_of(run).back())["test_loss"]);
  const ProcessResult predict =
      heddle({"predict", "--checkpoint", run, data.folder / "t10k-images-idx3-ubyte", "--range", "0:2"});
  CHECK(predict.exit_code == 0);
  CHECK(contains(predict.err, "made RGB from 1 channel, resized from 28x28 to 16x16"));
  if (!datasets::png_supported()) return;
  // A picture in colours is taken as it is.
  const std::string png = data.folder / "photo.png";
  std::string rows;
  for (int y = 0; y < 16; ++y) rows += '\0' + std::string(16 * 3, '\x40');
  put_file(png, png_bytes({.width = 16, .height = 16, .colour = 2, .rows = rows}));
  const ProcessResult colour = heddle({"predict", "--checkpoint", run, png});
  CHECK(colour.exit_code == 0);
  CHECK(colour.err == "");
}

}  // namespace heddle::test
