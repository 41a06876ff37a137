// The rows of the settings table: to add a setting, add a field to Settings and a row here.
#include "datasets/dataset_list.h"
#include "models/model_list.h"
#include "tools/settings.h"

namespace heddle::tools {
namespace {

constexpr double kManyItems = 1e9;

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const models::ModelInfo& info : models::model_list()) names.emplace_back(info.name);
  return names;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const datasets::DatasetInfo& info : datasets::dataset_list()) names.emplace_back(info.name);
  return names;
}

Setting text(const char* name, std::string Settings::*field, const char* value_name, const char* help) {
  return {.name = name, .field = field, .value_name = value_name, .help = help};
}

Setting choice(const char* name, std::string Settings::*field, const char* help, std::vector<std::string> choices,
               std::vector<RefusedValue> refused = {}) {
  return {.name = name,
          .field = field,
          .value_name = "NAME",
          .help = help,
          .choices = std::move(choices),
          .refused = std::move(refused)};
}

Setting integer(const char* name, std::int64_t Settings::*field, const char* help, double min, double max) {
  return {.name = name, .field = field, .value_name = "N", .help = help, .min = min, .max = max};
}

Setting number(const char* name, double Settings::*field, const char* help, double min, double max) {
  return {.name = name, .field = field, .value_name = "X", .help = help, .min = min, .max = max};
}

Setting on_off(const char* name, bool Settings::*field, const char* help) {
  return {.name = name, .field = field, .help = help};
}

Setting below_max(Setting row) {
  row.below_max = true;
  return row;
}

Setting changeable(Setting row) {
  row.may_change = true;
  return row;
}

// No preset sets it.
Setting machine(Setting row) {
  row.machine = true;
  return row;
}

std::vector<Setting> make_table() {
  using S = Settings;
  std::vector<Setting> rows;
  rows.push_back(machine(choice("model", &S::model, "network to train", model_names())));
  rows.push_back(machine(choice("dataset", &S::dataset,
                                "what to train on; of your own in --data-dir: idx = four IDX files, folder = PNG files "
                                "as train/CLASS/*.png and test/CLASS/*.png",
                                dataset_names())));
  rows.push_back(
      machine(changeable(text("data-dir", &S::data_dir, "DIR", "folder of the data files (default: search)"))));
  rows.push_back(machine(integer("image-size", &S::image_size,
                                 "bring the images to NxN once, bilinearly (those of --dataset folder as they are "
                                 "read, averaged over the area where they shrink); 0 = leave them as they are",
                                 0, 4096)));

  rows.push_back(changeable(integer("epochs", &S::epochs, "epochs in all, also when resumed", 1, 1e6)));

  rows.push_back(integer("batch-size", &S::batch_size, "images a step, over all ranks", 1, 1e6));

  rows.push_back(machine(
      changeable(integer("accumulate", &S::accumulate,
                         "pieces in which a rank computes its images of a step, to need less memory", 1, 1e6))));

  rows.push_back(choice("optimizer", &S::optimizer, "update rule", {"sgd", "adam", "adamw"}));

  rows.push_back(number("lr", &S::lr, "learning rate (peak, with a schedule)", 0, 1e38));

  rows.push_back(below_max(number("momentum", &S::momentum, "of sgd", 0, 1)));

  rows.push_back(on_off("nesterov", &S::nesterov, "Nesterov's form of momentum"));

  rows.push_back(number("weight-decay", &S::weight_decay, "L2 penalty; adamw: decoupled decay", 0, 1e6));

  rows.push_back(
      number("clip-grad-norm", &S::clip_grad_norm, "largest L2 norm of the gradient, 0 = no limit", 0, 1e38));

  rows.push_back(below_max(number("ema", &S::ema,
                                  "decay of a moving average of the weights, which is what is evaluated then, such "
                                  "as 0.999; 0 = none",
                                  0, 1)));

  rows.push_back(choice("schedule", &S::schedule, "of the learning rate", {"constant", "step", "cosine"}));

  rows.push_back(integer("schedule-step", &S::schedule_step, "schedule step: epochs between two drops", 1, kManyItems));

  rows.push_back(number("schedule-gamma", &S::schedule_gamma, "schedule step: factor of each drop", 0, 1));

  rows.push_back(number("warmup-epochs", &S::warmup_epochs, "epochs of linear rise to --lr", 0, 1e6));

  rows.push_back(
      below_max(number("label-smoothing", &S::label_smoothing, "share of the target spread over all classes", 0, 1)));

  rows.push_back(choice("augment", &S::augment, "random changes of training images", {"none", "flip", "crop-flip"}));

  rows.push_back(choice("normalize", &S::normalize,
                        "none = images in [0,1]; data = mean 0, deviation 1 over the training images",
                        {"none", "data"}));

  rows.push_back(machine(choice("precision", &S::precision, "of the arithmetic", {"fp32", "tf32"},
                                {{"bf16", "this build computes in fp32 and tf32 only"}})));
  rows.push_back(machine(changeable(text("device", &S::device, "NAME", "auto, cpu, or cuda[:i,j]"))));
  rows.push_back(machine(changeable(choice("kernels", &S::kernels,
                                           "implementations to prefer: the fastest, the vendor libraries', or our own",
                                           {"auto", "vendor", "own"}))));
  rows.push_back(machine(changeable(
      integer("ranks", &S::ranks, "data-parallel ranks in this process; a launcher starts others", 1, 1024))));
  rows.push_back(machine(choice("reduce-dtype", &S::reduce_dtype,
                                "what gradients are rounded to when ranks exchange them; bf16 halves the bytes",
                                {"fp32", "bf16"})));
  rows.push_back(machine(
      changeable(number("comm-timeout", &S::comm_timeout, "seconds that a rank waits for another one", 0.1, 86400))));
  rows.push_back(machine(on_off("sync-bn", &S::sync_bn, "batch statistics over all ranks")));
  rows.push_back(machine(changeable(on_off("parity-gate", &S::parity_gate,
                                           "check before training that a step of all ranks is that of one; "
                                           "--no-parity-gate skips it"))));
  rows.push_back(
      machine(changeable(integer("check-replicas", &S::check_replicas,
                                 "compare the ranks bit for bit every N steps too; 0 = at the end of each epoch "
                                 "and before each checkpoint only",
                                 0, kManyItems))));
  rows.push_back(machine(
      changeable(integer("threads", &S::threads, "CPU threads, 0 = as many as this process may use", 0, 4096))));
  rows.push_back(machine(integer("seed", &S::seed, "of weights, order and augmentation", 0, 9007199254740992.0)));
  rows.push_back(machine(on_off("deterministic", &S::deterministic, "only repeatable kernels (always so on a CPU)")));
  rows.push_back(machine(on_off("reproducible", &S::reproducible,
                                "the same bits for every number of ranks and threads, see docs/data-parallel.md; "
                                "implies --deterministic")));
  rows.push_back(machine(on_off("time-algorithms", &S::time_algorithms,
                                "on a GPU: measure the library's algorithms in the first step and keep the fastest")));
  rows.push_back(machine(changeable(
      integer("evaluate-every", &S::evaluate_every,
              "epochs between two passes over the test images; the last epoch always gets one", 1, kManyItems))));
  rows.push_back(machine(changeable(
      integer("early-stop", &S::early_stop,
              "end the run after N epochs without a better test accuracy, 0 = after --epochs only", 0, kManyItems))));
  rows.push_back(
      machine(changeable(text("time-limit", &S::time_limit, "TIME",
                              "save and stop after the step at which so much time has passed, as in 90, 45s or 1h30m; "
                              "0 = no limit. --resume goes on, with the same limit again"))));
  rows.push_back(
      machine(changeable(integer("checkpoint-every", &S::checkpoint_every,
                                 "epochs between checkpoints; the last epoch always gets one", 1, kManyItems))));
  rows.push_back(machine(changeable(integer("checkpoint-steps", &S::checkpoint_steps,
                                            "steps between checkpoints inside an epoch; 0 = none", 0, kManyItems))));
  rows.push_back(machine(
      changeable(integer("keep", &S::keep, "newest checkpoints to keep; the best one is kept besides", 1, 1e6))));
  rows.push_back(machine(changeable(on_off(
      "graph", &S::graph, "record a step once and replay it, on a GPU; --no-graph launches each kernel by itself"))));
  rows.push_back(
      machine(changeable(integer("steps-per-launch", &S::steps_per_launch,
                                 "recorded steps in one launch on a GPU, 0 = as many as suit the model", 0, 16))));
  return rows;
}

}  // namespace

const std::vector<Setting>& setting_table() {
  static const std::vector<Setting> table = make_table();
  return table;
}

}  // namespace heddle::tools
