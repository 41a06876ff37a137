#include "tools/train_options.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/core/text.h"
#include "tools/config_file.h"
#include "tools/presets.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

// In the order of the table's rows: each group begins with this setting.
struct Group {
  const char* first;
  const char* title;
};
constexpr const char* kRunGroup = "Run";
constexpr Group kGroups[] = {{"model", "What to train"},
                             {"epochs", "How long"},
                             {"optimizer", "Updates"},
                             {"schedule", "Learning rate over time"},
                             {"label-smoothing", "Data and loss"},
                             {"precision", "Machine"},
                             {"evaluate-every", "Evaluation, end and checkpoints"},
                             {"graph", "Steps on a GPU"}};

std::string choices_text(const Setting& row) {
  return row.choices.empty() ? row.help : row.help + ": " + join_names(row.choices, "|");
}

FlagSpec flag_of(const Setting& row, const std::string& group) {
  const std::string text = to_text(get_value(Settings{}, row));
  return {.name = row.name,
          .value_name = row.value_name,
          .help = choices_text(row),
          .default_text = row.value_name.empty() ? std::string() : text,
          .group = group};
}

void apply_flags(const ParsedArguments& arguments, Settings& settings) {
  for (const Setting& row : setting_table()) {
    if (arguments.has(row.name)) set_from_text(settings, row, arguments.get(row.name));
  }
}

// A run can be continued and its model evaluated from another folder than the one it was started in.
void make_data_dir_absolute(Settings& settings) {
  if (!settings.data_dir.empty()) settings.data_dir = std::filesystem::absolute(settings.data_dir).string();
}

TrainOptions read_new_run(const ParsedArguments& arguments) {
  TrainOptions options;
  // The preset depends on the model, so a --model must be known before it.
  if (arguments.has("config")) apply_config_file(options.settings, arguments.get("config"));
  if (arguments.has("model")) set_from_text(options.settings, *find_setting("model"), arguments.get("model"));
  options.preset = arguments.get("preset");
  if (arguments.has("preset")) apply_preset(options.settings, options.preset);
  apply_flags(arguments, options.settings);
  make_data_dir_absolute(options.settings);
  options.out = arguments.get("out");
  return options;
}

// What a resumed run compares and goes on writing has to be there as heddle train writes it. Throws: UsageError.
void check_description(const Json& run, const std::string& path) {
  const auto require = [&](bool ok, const char* what, const char* expected) {
    if (!ok)
      throw UsageError(fmt::format("--resume {}: '{}' of run.json is broken: expected {}", path, what, expected));
  };
  require(run.is_object() && run.contains("settings"), "settings", "the settings of the run");
  for (const char* name : {"started", "preset"}) {
    require(!run.contains(name) || run[name].is_string(), name, "a text");
  }
  require(!run.contains("resumed") || run["resumed"].is_array(), "resumed", "a list");
  if (!run.contains("data")) return;
  const bool has_files = run["data"].is_object() && run["data"].contains("files") && run["data"]["files"].is_array();
  require(has_files, "data", "a list of files");
  for (const Json& file : run["data"]["files"]) {
    require(file.is_object() && file.contains("crc32") && file["crc32"].is_string(), "data",
            "a checksum for each file");
  }
}

void refuse_flags_of_new_runs(const ParsedArguments& arguments) {
  for (const char* name : {"out", "config", "preset"}) {
    if (arguments.has(name)) {
      throw UsageError(
          fmt::format("--{} does not go with --resume: a resumed run keeps its folder and settings", name));
    }
  }
}

// Applies the flags to the settings of the run in this folder. Throws: UsageError for one that it cannot get.
void change_settings(TrainOptions& options, const ParsedArguments& arguments, const std::string& path) {
  Settings wanted = options.settings;
  apply_flags(arguments, wanted);
  make_data_dir_absolute(wanted);
  std::string contradictions;
  for (const Setting& row : setting_table()) {
    const SettingValue before = get_value(options.settings, row);
    const SettingValue now = get_value(wanted, row);
    if (before == now) continue;
    const std::string change = fmt::format("--{} {} (the run has {})", row.name, to_text(now), to_text(before));
    if (row.may_change) {
      options.notices.push_back("changed for the rest of the run: " + change);
    } else {
      contradictions += (contradictions.empty() ? "" : ", ") + change;
    }
  }
  if (!contradictions.empty()) {
    throw UsageError(fmt::format("--resume {}: these flags contradict the run: {}", path, contradictions));
  }
  if (wanted.epochs != options.settings.epochs && wanted.schedule == "cosine") {
    options.notices.emplace_back("the cosine schedule is stretched to the new number of epochs");
  }
  options.settings = wanted;
}

TrainOptions read_resumed_run(const ParsedArguments& arguments, const std::string& path, bool reports) {
  TrainOptions options;
  options.resumed = reports ? RunFolder::open(path) : RunFolder::open_to_read(path);
  const Json description = options.resumed->read_description();
  check_description(description, path);
  apply_json(options.settings, description["settings"], path + "/run.json");
  change_settings(options, arguments, path);
  return options;
}

// What a run of a set is continued with: the flags, and below them what the set was changed to.
ParsedArguments flags_of_set(ParsedArguments arguments, const SeedSet& set) {
  arguments.flags.erase("seed");
  for (const Setting& row : setting_table()) {
    if (row.may_change) arguments.flags.emplace(row.name, to_text(get_value(set.settings(), row)));
  }
  return arguments;
}

}  // namespace

std::vector<FlagSpec> setting_flags() {
  std::vector<FlagSpec> flags;
  std::string group;
  for (const Setting& row : setting_table()) {
    for (const Group& candidate : kGroups) {
      if (row.name == candidate.first) group = candidate.title;
    }
    flags.push_back(flag_of(row, group));
  }
  flags.push_back(
      {"config", "FILE", "settings from a JSON file with the names above, or from a run.json", "", kRunGroup});
  flags.push_back({"preset", "NAME",
                   "settings that belong together: " + join_names(preset_names(), "|") +
                       "; stronger than --config, weaker than other flags",
                   "", kRunGroup});
  return flags;
}

CommandSpec train_spec() {
  CommandSpec spec{.name = "heddle train",
                   .summary = "train a model and write a run folder",
                   .example =
                       "heddle train --model lenet --preset best --out runs/first\n"
                       "  heddle train --model lenet --lr 0.05 --momentum 0.9 --epochs 5 --batch-size 128\n"
                       "  heddle train --resume runs/first"};
  spec.flags = setting_flags();
  const std::string run = kRunGroup;
  spec.flags.push_back({"out", "DIR", "new folder of the run (default: runs/MODEL-DATASET-TIME)", "", run});
  spec.flags.push_back({"resume", "DIR", "continue the run in this folder", "", run});
  spec.flags.push_back({"seeds", "N",
                        "train N runs that differ in their seed (S, S+1, ...), each in a sub-folder, and report mean "
                        "and spread",
                        "", run});
  spec.flags.push_back({"store", "PLACE",
                        "where ranks that a launcher starts meet, file:FOLDER or tcp:HOST:PORT (default: as the "
                        "launcher says)",
                        "", run});
  return spec;
}

TrainOptions read_train_options(const ParsedArguments& arguments, bool reports) {
  const bool resumes = arguments.has("resume");
  if (resumes) refuse_flags_of_new_runs(arguments);
  TrainOptions options =
      resumes ? read_resumed_run(arguments, arguments.get("resume"), reports) : read_new_run(arguments);
  options.store = arguments.get("store");
  check_combinations(options.settings);
  return options;
}

TrainOptions read_seed_options(const ParsedArguments& arguments, const SeedSet& set, std::int64_t seed) {
  if (arguments.has("resume")) refuse_flags_of_new_runs(arguments);
  const std::string path = set.run_path(seed);
  const ParsedArguments flags = flags_of_set(arguments, set);
  TrainOptions options;
  if (RunFolder::is_there(path)) {
    options = read_resumed_run(flags, path, true);
  } else {
    options.settings = set.settings();
    change_settings(options, flags, set.path());
    options.settings.seed = seed;
    options.preset = set.preset();
    options.out = path;
  }
  check_combinations(options.settings);
  return options;
}

}  // namespace heddle::tools
