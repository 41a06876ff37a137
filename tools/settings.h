// The settings of a training run. One table of rows (name, kind, range, help) serves the flags of `heddle train`, the
// JSON configuration, the presets and run.json, so that a name means the same everywhere. Knows nothing of flags
// parsing, files or the engine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heddle::tools {

// Values of a run. The initialisers are the defaults that --help shows.
struct Settings {
  std::string model = "lenet";
  std::string dataset = "fashion-mnist";
  std::string data_dir;
  std::int64_t image_size = 0;

  std::int64_t epochs = 10;
  std::int64_t batch_size = 256;
  std::int64_t accumulate = 1;

  std::string optimizer = "sgd";
  double lr = 0.1;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  double clip_grad_norm = 0.0;
  double ema = 0.0;

  std::string schedule = "constant";
  std::int64_t schedule_step = 4;
  double schedule_gamma = 0.1;
  double warmup_epochs = 0.0;

  double label_smoothing = 0.0;
  std::string augment = "none";
  std::string normalize = "none";

  std::string precision = "fp32";
  std::string device = "auto";
  std::string kernels = "auto";
  std::int64_t ranks = 1;
  std::string reduce_dtype = "fp32";
  bool sync_bn = false;
  bool parity_gate = true;
  std::int64_t check_replicas = 0;
  double comm_timeout = 60.0;
  std::int64_t threads = 0;
  std::int64_t seed = 1;
  bool deterministic = false;
  bool reproducible = false;
  bool time_algorithms = false;
  std::int64_t evaluate_every = 1;
  std::int64_t early_stop = 0;
  std::string time_limit = "0";
  std::int64_t checkpoint_every = 1;
  std::int64_t checkpoint_steps = 0;
  std::int64_t keep = 3;
  bool graph = true;
  std::int64_t steps_per_launch = 0;

  friend bool operator==(const Settings&, const Settings&) = default;
};

using SettingField =
    std::variant<std::string Settings::*, std::int64_t Settings::*, double Settings::*, bool Settings::*>;

// A value that belongs to the contract of the program but not to this build.
struct RefusedValue {
  std::string value;
  std::string reason;  // completes "--name value: "
};

// One row of the table.
struct Setting {
  std::string name;  // of the flag without "--", and of the JSON key
  SettingField field;
  std::string value_name;  // in --help; empty for switches
  std::string help;
  double min = 0.0;                  // numbers: smallest and largest allowed value
  double max = 0.0;                  //
  bool below_max = false;            // max itself is not allowed
  std::vector<std::string> choices;  // texts: allowed values; empty: any text
  std::vector<RefusedValue> refused;
  bool may_change = false;  // a resumed run may get another value
  bool machine = false;     // of the model, the data or the machine: no preset sets it
};

// A setting's value as text or JSON would hold it.
using SettingValue = std::variant<std::string, std::int64_t, double, bool>;

const std::vector<Setting>& setting_table();
std::vector<std::string> setting_names();
// Null if there is none of that name; '_' counts as '-'.
const Setting* find_setting(std::string_view name);

SettingValue get_value(const Settings& settings, const Setting& row);
// The value as a person would type it: "0.1", "true", "lenet".
std::string to_text(const SettingValue& value);

// Sets one value from what a person typed. Throws: UsageError naming the setting, the value, and what is allowed (with
// the nearest known value).
void set_from_text(Settings& settings, const Setting& row, std::string_view text);
// Sets one value of the right type. An integer serves for a number. Throws: UsageError as above.
void set_value(Settings& settings, const Setting& row, const SettingValue& value);

// Checks what one row cannot see: values that exclude each other. Throws: UsageError naming both.
void check_combinations(const Settings& settings);

}  // namespace heddle::tools
