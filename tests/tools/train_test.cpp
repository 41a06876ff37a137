// Whole trainings: the run folder, repeatability, the way through a configuration file, and loss that blows up.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/tools/program.h"

namespace heddle::test {

TEST_CASE("a run writes its folder: description, one line of metrics an epoch, checkpoints") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const ProcessResult result =
      heddle(small_training(folder.path(), folder / "deep/run", {"--epochs", "3", "--seed", "7"}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "seed     7"));
  CHECK(contains(result.out, "threads  1 (--threads)"));
  CHECK(contains(result.out, "44426 parameters"));

  std::istringstream lines(get_file(folder / "deep/run/metrics.jsonl"));
  std::int64_t epoch = 0;
  for (std::string line; std::getline(lines, line);) {
    const tools::Json json = tools::Json::parse(line);
    std::vector<std::string> keys;
    for (const auto& item : json.items()) keys.push_back(item.key());
    CHECK(keys == std::vector<std::string>{"epoch", "step", "train_loss", "train_accuracy", "test_loss",
                                           "test_accuracy", "seconds", "images_per_second", "train_samples",
                                           "learning_rate"});
    CHECK(json["epoch"] == ++epoch);
    // 600 images in batches of 32: the last one has 24.
    CHECK(json["step"] == epoch * 19);
    CHECK(json["learning_rate"] == 0.05);
    CHECK(json["seconds"].get<double>() > 0);
    CHECK(json["train_samples"] == 600);
    CHECK(json["images_per_second"].get<double>() == Approx(600 / json["seconds"].get<double>()));
  }
  CHECK(epoch == 3);

  const tools::Json run = json_file(folder / "deep/run/run.json");
  CHECK(run["seed"] == 7);
  CHECK(run["settings"]["batch-size"] == 32);
  CHECK(run["threads"]["count"] == 1);
  CHECK(run["result"]["finished"] == true);
  CHECK(run["result"]["steps"] == 57);
  CHECK(contains(result.out, "weights crc32 " + run["result"]["weights_crc32"].get<std::string>()));
  CHECK(file_exists(folder / "deep/run/checkpoints/step-000000000057.safetensors"));
  CHECK(file_exists(folder / "deep/run/checkpoints/best.safetensors"));
}

TEST_CASE("--kernels chooses the implementations of a whole training, and the results agree") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  std::vector<double> losses;
  std::vector<std::string> weights;
  for (const std::string choice : {"auto", "vendor", "own"}) {
    INFO(choice);
    const ProcessResult result =
        heddle(small_training(folder.path(), folder / choice, {"--epochs", "1", "--kernels", choice}));
    REQUIRE(result.exit_code == 0);
    const tools::Json run = json_file(folder / (choice + "/run.json"));
    CHECK(run["settings"]["kernels"] == choice);
    weights.push_back(run["result"]["weights_crc32"].get<std::string>());
    losses.push_back(tools::Json::parse(get_file(folder / (choice + "/metrics.jsonl")))["test_loss"].get<double>());
  }
  CHECK(losses[1] == Approx(losses[0]).epsilon(1e-3));
  CHECK(losses[2] == Approx(losses[0]).epsilon(1e-3));
  CHECK(weights[1] != weights[2]);  // other sums, other rounding

  const ProcessResult wrong = heddle(small_training(folder.path(), folder / "x", {"--kernels", "vendr"}));
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.err, "did you mean vendor?"));
}

TEST_CASE("the same seed gives the same weights and metrics, another seed others") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const auto train = [&](const std::string& out, const std::string& seed) {
    const ProcessResult result = heddle(small_training(
        folder.path(), folder / out,
        {"--epochs", "2", "--seed", seed, "--augment", "crop-flip", "--momentum", "0.9", "--threads", "2"}));
    REQUIRE(result.exit_code == 0);
    return json_file(folder / (out + "/run.json"))["result"]["weights_crc32"].get<std::string>();
  };
  const std::string first = train("a", "1");
  CHECK(train("b", "1") == first);
  CHECK(train("c", "2") != first);
  CHECK(metrics_of(folder / "a") == metrics_of(folder / "b"));
  CHECK(metrics_of(folder / "a") != metrics_of(folder / "c"));
}

TEST_CASE("run.json as a configuration repeats the run") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  REQUIRE(heddle(small_training(folder.path(), folder / "a",
                                {"--epochs",
                                 "3",
                                 "--optimizer",
                                 "adamw",
                                 "--lr",
                                 "0.002",
                                 "--schedule",
                                 "cosine",
                                 "--warmup-epochs",
                                 "0.5",
                                 "--weight-decay",
                                 "0.01",
                                 "--label-smoothing",
                                 "0.1",
                                 "--normalize",
                                 "data",
                                 "--clip-grad-norm",
                                 "2",
                                 "--model",
                                 "lenet-d2l"}))
              .exit_code == 0);
  const ProcessResult again = heddle({"train", "--config", folder / "a/run.json", "--out", folder / "b"});
  INFO(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(metrics_of(folder / "a") == metrics_of(folder / "b"));
  CHECK(json_file(folder / "a/run.json")["settings"] == json_file(folder / "b/run.json")["settings"]);
}

TEST_CASE("training learns: every optimiser gets most test images right") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const auto accuracy = [&](const std::string& out, std::vector<std::string> more) {
    const ProcessResult result = heddle(small_training(folder.path(), folder / out, std::move(more)));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return json_file(folder / (out + "/run.json"))["result"]["best_test_accuracy"].get<double>();
  };
  CHECK(accuracy("sgd", {"--epochs", "5", "--lr", "0.02", "--momentum", "0.9", "--nesterov", "--normalize", "data"}) >
        0.8);
  CHECK(accuracy("adam", {"--epochs", "5", "--optimizer", "adam", "--lr", "0.002"}) > 0.8);
}

TEST_CASE("a loss that blows up stops the run at once and keeps the last good checkpoint") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const ProcessResult result = heddle(small_training(folder.path(), folder / "run", {"--lr", "1e30", "--epochs", "2"}));
  CHECK(result.exit_code == 1);
  INFO(result.err);
  CHECK(contains(result.err, "NaN or infinite at step "));
  CHECK(contains(result.err, "(epoch 1)"));
  CHECK(contains(result.err, "last finite loss was"));
  CHECK(contains(result.err, "no checkpoint had been written"));
  const std::size_t place = result.err.find("at step ") + 8;
  CHECK(std::stoi(result.err.substr(place)) <= 10);
  CHECK(get_file(folder / "run/metrics.jsonl").empty());

  // With a good first epoch there is something to keep.
  const std::string run = folder / "later";
  // Each step multiplies the weights by 1 - 0.1 * 20.6 and the sign changes: they grow by 6 %.
  const ProcessResult later =
      heddle(small_training(folder.path(), run, {"--epochs", "2", "--lr", "0.1", "--weight-decay", "20.6"}));
  INFO(later.err);
  CHECK(later.exit_code == 1);
  CHECK(contains(later.err, "(epoch 2)"));
  CHECK(contains(later.err, "the last good checkpoint is " + run + "/checkpoints/step-000000000019.safetensors"));
  CHECK(heddle({"eval", "--checkpoint", run}).exit_code == 0);
}

TEST_CASE("an output folder that cannot be used is refused before the first step") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  put_file(folder / "file", "content");
  const ProcessResult file = heddle(small_training(folder.path(), folder / "file"));
  CHECK(file.exit_code == 1);
  CHECK(contains(file.err, folder / "file"));
  CHECK(get_file(folder / "file") == "content");

  REQUIRE(heddle(small_training(folder.path(), folder / "run", {"--epochs", "1"})).exit_code == 0);
  const std::string before = get_file(folder / "run/metrics.jsonl");
  const ProcessResult again = heddle(small_training(folder.path(), folder / "run", {"--epochs", "1"}));
  CHECK(again.exit_code == 2);
  CHECK(contains(again.err, "holds a run already"));
  CHECK(contains(again.err, "--resume " + (folder / "run")));
  CHECK(get_file(folder / "run/metrics.jsonl") == before);

  // Refused before the data is looked at, and what was killed before it described its run is in nobody's way.
  const ProcessResult early = heddle(small_training(folder / "no-data", folder / "run"));
  CHECK(early.exit_code == 2);
  CHECK(contains(early.err, "holds a run already"));
  const ProcessResult proc = heddle(small_training(folder / "no-data", "/proc/run"));
  CHECK(proc.exit_code == 1);
  CHECK(contains(proc.err, "/proc/run: no run can be written there: cannot be created as a folder: "));
  std::filesystem::create_directories(folder / "killed/checkpoints");
  put_file(folder / "killed/metrics.jsonl", "");
  put_file(folder / "killed/.run.json.tmp-1-0123456789abcdef", "{");
  CHECK(heddle(small_training(folder.path(), folder / "killed", {"--epochs", "1"})).exit_code == 0);
  CHECK_FALSE(file_exists(folder / "killed/.run.json.tmp-1-0123456789abcdef"));

  // What speaks against a folder shows before the data is looked at, and looking leaves nothing behind.
  REQUIRE(::symlink("nowhere", (folder / "link").c_str()) == 0);
  const ProcessResult link = heddle(small_training(folder / "no-data", folder / "link"));
  CHECK(link.exit_code == 1);
  CHECK(contains(link.err, "it is a symbolic link that leads nowhere (" + (folder / "link") + ")"));
  const ProcessResult name = heddle(small_training(folder / "no-data", folder / ("a/" + std::string(300, 'n'))));
  CHECK(name.exit_code == 1);
  CHECK(contains(name.err, "File name too long"));
  const ProcessResult data = heddle(small_training(folder / "no-data", folder / "a/b/c"));
  CHECK(data.exit_code == 1);
  CHECK(contains(data.err, folder / "no-data"));
  CHECK_FALSE(file_exists(folder / "a"));

  if (::geteuid() != 0) {
    ::mkdir((folder / "locked").c_str(), 0500);
    const ProcessResult locked = heddle(small_training(folder.path(), folder / "locked/run"));
    CHECK(locked.exit_code == 1);
    CHECK(contains(locked.err, folder / "locked"));
  }
}

TEST_CASE("runs that start at the same moment get folders of their own") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  ProcessOptions options;
  std::string command = "for i in 1 2 3 4 5 6; do '" + heddle_path() + "' train --dataset idx --data-dir '" +
                        folder.path() + "' --epochs 1 --threads 1 & pids=\"$pids $!\"; done; " +
                        "for pid in $pids; do wait $pid || exit 1; done";
  options.arguments = {"-c", command};
  options.folder = folder.path();
  const ProcessResult result = run_process("/bin/sh", options);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  const auto runs = std::filesystem::directory_iterator(folder / "runs");
  CHECK(std::distance(begin(runs), end(runs)) == 6);
}

TEST_CASE("memory that runs out is explained: device, bytes asked, in use, free, and what helps") {
  if (kInstrumented) return;  // the address sanitizer needs terabytes of address space
  const TempFolder folder;
  ProcessOptions options;
  options.arguments = {"-c", "ulimit -v 300000; exec " + heddle_path() +
                                 " train --model lenet-d2l --dataset synthetic --batch-size 6000 --threads 1 --out " +
                                 (folder / "run")};
  const ProcessResult result = Process("/bin/sh", options).wait();
  INFO(result.err);
  CHECK(result.exit_code == 1);
  for (const char* part : {"out of memory on cpu", "asked for", "in use", "free of", "smaller batch size"}) {
    CHECK(contains(result.err, part));
  }
}

TEST_CASE("training LeNet on as many images as Fashion-MNIST has stays below 250 MB") {
  if (kInstrumented) return;
  const TempFolder folder;
  write_small_dataset(folder.path(), 60000, 10000);
  const ProcessResult result =
      heddle({"train", "--data-dir", folder.path(), "--dataset", "idx", "--out", folder / "run", "--epochs", "1"});
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  const auto peak = json_file(folder / "run/run.json")["result"]["peak_resident_bytes"].get<double>();
  CHECK(peak > 50e6);
  CHECK(peak <= 250e6);
}
TEST_CASE("a full disk ends the run with the file and the reason") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  ProcessOptions options;
  options.max_file_nbytes = 20000;  // run.json fits, a checkpoint does not
  const ProcessResult result = heddle(small_training(folder.path(), folder / "run", {"--epochs", "1"}), options);
  INFO(result.err);
  CHECK(result.exit_code == 1);
  CHECK(result.signal == 0);
  CHECK(contains(result.err, folder / "run/checkpoints/best.safetensors"));
}

}  // namespace heddle::test
