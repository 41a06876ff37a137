// What a trained model says about images.
#include "tests/support/catch.h"
#include "tests/support/gzip.h"
#include "tests/support/png_bytes.h"
#include "tests/tools/program.h"

#include <limits>

#include "datasets/image_file.h"
#include "datasets/synthetic.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/state_dict.h"
#include "models/model_list.h"

namespace heddle::test {
namespace {

// One trained run for all tests of this file.
struct TrainedRun {
  TempFolder folder;
  std::string path = folder / "run";
  TrainedRun() {
    write_small_dataset(folder.path());
    REQUIRE(heddle(small_training(folder.path(), path, {"--epochs", "6", "--momentum", "0.9"})).exit_code == 0);
  }
};

const TrainedRun& trained_run() {
  static const TrainedRun run;
  return run;
}

// PNG of image i of the test part, each pixel p of it written as transform(p).
template <class Transform>
std::string png_of_test_image(std::size_t i, Transform transform) {
  const datasets::ImageDatasetPair pair = datasets::make_synthetic({.n_train = 600, .n_test = 200});
  std::string rows;
  for (std::size_t y = 0; y < 28; ++y) {
    rows += '\0';
    for (std::size_t x = 0; x < 28; ++x) rows += static_cast<char>(transform(pair.test.images[i * 784 + y * 28 + x]));
  }
  return png_bytes({.width = 28, .height = 28, .rows = rows});
}

tools::Json predict(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"predict", "--json", "--checkpoint", trained_run().path});
  const ProcessResult result = heddle(std::move(arguments));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return tools::Json::parse(result.out);
}

}  // namespace

TEST_CASE("eval gives the accuracy that the training logged, with tables that add up") {
  const TrainedRun& run = trained_run();
  const ProcessResult json_result = heddle({"eval", "--json", "--checkpoint", run.path});
  REQUIRE(json_result.exit_code == 0);
  const tools::Json json = tools::Json::parse(json_result.out);
  const tools::Json logged = tools::Json::parse(metrics_of(run.path).back());
  CHECK(json["accuracy"] == logged["test_accuracy"]);
  CHECK(json["loss"] == logged["test_loss"]);
  CHECK(json["samples"] == 200);
  std::int64_t total = 0, correct = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    std::int64_t row = 0, column = 0;
    for (std::size_t j = 0; j < 10; ++j) {
      row += json["confusion"][i][j].get<std::int64_t>();
      column += json["confusion"][j][i].get<std::int64_t>();
    }
    const auto hits = json["confusion"][i][i].get<double>();
    CHECK(json["classes"][i]["support"] == row);
    if (row > 0) CHECK(json["classes"][i]["recall"].get<double>() == Approx(hits / static_cast<double>(row)));
    if (column > 0) CHECK(json["classes"][i]["precision"].get<double>() == Approx(hits / static_cast<double>(column)));
    total += row;
    correct += static_cast<std::int64_t>(hits);
  }
  CHECK(total == 200);
  CHECK(json["accuracy"].get<double>() == Approx(static_cast<double>(correct) / 200));

  const ProcessResult text = heddle({"eval", "--checkpoint", run.path});
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "precision   recall       F1  support"));
  CHECK(contains(text.out, "confusion matrix"));
}

TEST_CASE("eval refuses what it cannot use") {
  const TrainedRun& run = trained_run();
  CHECK(heddle({"eval", "--checkpoint", run.folder / "none"}).exit_code == 1);
  CHECK(heddle({"eval", "--checkpoint", run.path, "--part", "validation"}).exit_code == 2);
  CHECK(heddle({"eval", "--checkpoint", run.path, "--model", "lenet-d2l"}).exit_code == 2);
  const std::string broken = run.folder / "broken.safetensors";
  put_file(broken, "not a checkpoint");
  const ProcessResult result = heddle({"eval", "--checkpoint", broken});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, broken));
}

TEST_CASE("weights that give no number are an error of eval and predict, and no result") {
  const TrainedRun& run = trained_run();
  const std::string weights = run.folder / "weights.safetensors";
  const std::shared_ptr<nn::Module> model = models::make_model("lenet", {});
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    Philox random(1);
    model->reset_parameters(random);
    Tensor first = model->named_parameters().front().variable.mutable_data();
    for (int i = 0; i < 20; ++i) first.mutable_host_data<float>()[i] = value;
    checkpoint::save_weights(weights, *model);
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"eval", "--data-dir", run.folder.path(), "--dataset", "idx"},
          std::vector<std::string>{"predict", run.folder / "t10k-images-idx3-ubyte"}}) {
      for (const bool json : {false, true}) {
        std::vector<std::string> all = arguments;
        all.insert(all.end(), {"--model", "lenet", "--checkpoint", weights});
        if (json) all.emplace_back("--json");
        const ProcessResult result = heddle(all);
        INFO(arguments[0] << " " << value << result.out << result.err);
        CHECK(result.exit_code == 1);
        CHECK(result.out.empty());
        CHECK(contains(result.err, weights + ": the "));
        CHECK(contains(result.err, "NaN or infinite"));
      }
    }
  }
}

TEST_CASE("weights that contradict themselves in the number of classes, or have too many, are refused") {
  const TempFolder folder;
  const std::string weights = folder / "weights.safetensors";
  const auto refusal = [&](std::int64_t rows, std::int64_t values) {
    const std::vector<float> zeros(60000);
    write_safetensors(weights,
                      std::vector<TensorToWrite>{{.name = "11.weight", .shape = {rows, 2}, .data = zeros.data()},
                                                 {.name = "11.bias", .shape = {values}, .data = zeros.data()}});
    const ProcessResult result = heddle({"eval", "--model", "lenet", "--checkpoint", weights});
    CHECK(result.exit_code == 1);
    return result.err;
  };
  CHECK(contains(refusal(3, 25000), "'11.bias' has 25000 values, and '11.weight' 3 rows"));
  CHECK(contains(refusal(25001, 25001), "'11.bias' is of 25001 classes; at most 25000 are possible"));
}

TEST_CASE("eval and predict say when they use an older checkpoint than the newest") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 100, 50);
  const std::string path = folder / "run";
  REQUIRE(heddle(small_training(folder.path(), path, {"--epochs", "2"})).exit_code == 0);
  const std::string newest = path + "/checkpoints/step-000000000008.safetensors";
  put_file(newest, get_file(newest).substr(0, 5000));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"eval", "--checkpoint", path, "--data-dir", folder.path()},
        std::vector<std::string>{"predict", "--checkpoint", path, folder / "t10k-images-idx3-ubyte"}}) {
    const ProcessResult result = heddle(arguments);
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(contains(result.err, "warning: an older checkpoint is used, since this one is broken: " + newest));
  }
}

TEST_CASE("predict gives the same answer for a PNG, its negative, and the IDX file") {
  const TrainedRun& run = trained_run();
  const tools::Json from_idx = predict({run.folder / "t10k-images-idx3-ubyte", "--range", "3:6"});
  REQUIRE(from_idx.size() == 3);
  CHECK(from_idx[0]["image"] == (run.folder / "t10k-images-idx3-ubyte") + "[3]");
  CHECK(from_idx[0]["classes"].size() == 3);
  const double first = from_idx[0]["classes"][0]["probability"].get<double>();
  const double second = from_idx[0]["classes"][1]["probability"].get<double>();
  CHECK(first >= second);
  CHECK(first <= 1.0);

  if (!datasets::png_supported()) return;
  const std::string png = run.folder / "image.png";
  put_file(png, png_of_test_image(4, [](std::uint8_t p) { return p; }));
  CHECK(predict({png, "--invert", "off"})[0]["classes"] == from_idx[1]["classes"]);
  put_file(png, png_of_test_image(4, [](std::uint8_t p) { return 255 - p; }));
  CHECK(predict({png, "--invert", "on"})[0]["classes"] == from_idx[1]["classes"]);
}

TEST_CASE("pictures are made to fit, with a notice") {
  if (!datasets::png_supported()) return;
  const TrainedRun& run = trained_run();
  const std::string png = run.folder / "photo.png";
  // 60x40 in white RGB: three things to change.
  std::string rows;
  for (int y = 0; y < 40; ++y) rows += '\0' + std::string(60 * 3, '\xff');
  put_file(png, png_bytes({.width = 60, .height = 40, .colour = 2, .rows = rows}));
  const ProcessResult result = heddle({"predict", "--checkpoint", run.path, png});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.err, "made grey from 3 channels, resized from 40x60 to 28x28, inverted, since"));
  CHECK(contains(result.out, png + ":  "));
  CHECK(contains(result.out, "%"));
}

TEST_CASE("predict refuses files that hold no images, and ranges outside") {
  const TrainedRun& run = trained_run();
  const auto refused = [&](std::vector<std::string> arguments, int code, const std::string& part) {
    arguments.insert(arguments.begin(), {"predict", "--checkpoint", run.path});
    const ProcessResult result = heddle(std::move(arguments));
    INFO(result.err);
    CHECK(result.exit_code == code);
    CHECK(contains(result.err, part));
  };
  refused({run.folder / "t10k-labels-idx1-ubyte"}, 1, "holds no images");
  refused({run.folder / "t10k-images-idx3-ubyte", "--range", "200"}, 2, "holds 200 images");
  refused({run.folder / "t10k-images-idx3-ubyte", "--range", "5:5"}, 2, "--range 5:5");
  refused({run.folder / "t10k-images-idx3-ubyte", "--range", "-1"}, 2, "--range");
  refused({run.folder / "missing.png"}, 1, "missing.png");
  refused({run.path + "/run.json"}, 1, "run.json: is neither a PNG image nor an IDX file: it begins with 7b");
  put_file(run.folder / "none-idx3-ubyte", std::string("\0\0\x08\x03\0\0\0\0\0\0\0\x1c\0\0\0\x1c", 16));
  refused({run.folder / "none-idx3-ubyte"}, 1, "none-idx3-ubyte: holds no");
  put_file(run.folder / "empty.png", "");
  refused({run.folder / "empty.png"}, 1, "empty.png: is empty; expected a PNG image or an IDX file");
}

}  // namespace heddle::test
