// `heddle verify-resume`, and the comparison that it rests on.
#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/linear.h"
#include "engine/optim/sgd.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tools/checkpoint_compare.h"

namespace heddle::test {
namespace {

using Strings = std::vector<std::string>;

ProcessResult verify(const std::string& data, const Strings& more) {
  Strings arguments = {"verify-resume", "--dataset", "idx", "--data-dir", data, "--threads", "1", "--batch-size", "16"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return heddle(arguments);
}

}  // namespace

TEST_CASE("a stopped and resumed training has the bits of an uninterrupted one, with every kind of state") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 40);
  for (const Strings& recipe : {Strings{"--momentum", "0.9", "--nesterov", "--schedule", "cosine", "--warmup-epochs",
                                        "1", "--augment", "crop-flip", "--ema", "0.9"},
                                Strings{"--model", "lenet-d2l", "--optimizer", "adamw", "--lr", "0.002",
                                        "--clip-grad-norm", "1", "--ranks", "2"},
                                Strings{"--preset", "best", "--reproducible", "--ranks", "2", "--epochs", "2"}}) {
    const ProcessResult result = verify(folder.path(), recipe);
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(contains(result.out, "88 images"));
    CHECK(contains(result.out, "in one go: 2 epochs of 6 steps"));
    CHECK(contains(result.out, "stopped in epoch 1 after step 3, resumed: the same bits in "));
    CHECK(contains(result.out, "stopped in epoch 2 after step 9, resumed: the same bits in "));
    CHECK(contains(result.out, "stopped behind epoch 1 after step 6, resumed: the same bits in "));
  }
}

TEST_CASE("verify-resume leaves nothing behind, and refuses what it cannot do") {
  const TempFolder folder, temporary;
  write_small_dataset(folder.path(), 64, 20);
  ProcessOptions options;
  options.environment = {{"TMPDIR", temporary.path()}};
  const ProcessResult result = heddle({"verify-resume", "--dataset", "idx", "--data-dir", folder.path(), "--epochs",
                                       "1", "--images", "20", "--batch-size", "8"},
                                      options);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "in one go: 1 epochs of 3 steps"));
  CHECK(temporary.num_files() == 0);
  CHECK(verify(folder.path(), {"--images", "0"}).exit_code == 2);
  CHECK(verify(folder.path(), {"--images", "many"}).exit_code == 2);
  CHECK(heddle({"verify-resume", "--resume", "x"}).exit_code == 2);
  // What the proof chooses itself.
  for (const char* name :
       {"early-stop", "time-limit", "checkpoint-steps", "evaluate-every", "checkpoint-every", "keep"}) {
    CHECK(verify(folder.path(), {std::string("--") + name, "1"}).exit_code == 2);
  }
  options.environment = {{"TMPDIR", folder / "none"}};
  CHECK(heddle({"verify-resume", "--dataset", "synthetic"}, options).exit_code == 1);
}

TEST_CASE("the first difference between two checkpoints is named, with both values") {
  const TempFolder folder;
  nn::Linear layer(3, 2);
  for (auto& p : layer.named_parameters()) p.variable.mutable_data().copy_from(Tensor::full(p.variable.shape(), 0.25));
  nn::ParameterBuffer buffer(layer);
  optim::Sgd sgd(buffer, 0.1, SgdParams{.momentum = 0.9});
  const std::string a = folder / "a", b = folder / "b";
  checkpoint::save_checkpoint(a, layer, &sgd, {.step = 3});
  const auto difference = [&](const std::string& other) { return tools::compare_checkpoints(a, other).difference; };
  const tools::CheckpointComparison same = tools::compare_checkpoints(a, a);
  CHECK(same.difference.empty());
  CHECK(same.tensors == 3);
  CHECK(same.values == 6 + 2 + 12);  // the optimiser's buffer has whole packs of four

  Tensor weight = layer.named_parameters()[0].variable.mutable_data();
  weight.reshape({6}).narrow(4, 1).copy_from(Tensor::full({1}, 0.5));
  checkpoint::save_checkpoint(b, layer, &sgd, {.step = 4});
  CHECK(difference(b) == "'weight' differs first at element 4 of 6: 0.25 and 0.5");
  weight.reshape({6}).narrow(4, 1).copy_from(Tensor::full({1}, 0.25));
  checkpoint::save_checkpoint(b, layer, &sgd, {.step = 4});
  CHECK(contains(difference(b), "'heddle.state' differs: "));
  checkpoint::save_checkpoint(b, layer, nullptr, {.step = 3});
  CHECK(difference(b) == "'optimizer/momentum' is in the first alone");
  CHECK(tools::compare_checkpoints(b, a).difference == "'optimizer/momentum' is in the second alone");
}

}  // namespace heddle::test
