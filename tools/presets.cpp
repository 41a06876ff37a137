#include "tools/presets.h"

#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

// What a preset says about how to train; fields that describe the model, the data and the machine are not its business.
void copy_recipe(const Settings& recipe, Settings& settings) {
  for (const Setting& row : setting_table()) {
    if (!row.machine) set_value(settings, row, get_value(recipe, row));
  }
}

// Plain SGD, and nothing else: what a first lesson trains with.
Settings seed_recipe() {
  Settings s;
  s.epochs = 10;
  s.batch_size = 256;
  s.optimizer = "sgd";
  s.lr = 0.1;
  return s;
}

Settings best_lenet_recipe() {
  Settings s;
  s.epochs = 30;
  s.batch_size = 128;
  s.optimizer = "sgd";
  s.lr = 0.05;
  s.momentum = 0.9;
  s.nesterov = true;
  s.weight_decay = 1e-3;
  s.ema = 0.999;
  s.schedule = "cosine";
  s.augment = "flip";
  s.normalize = "data";
  return s;
}

// The usual recipe of residual networks on small images.
Settings best_resnet_recipe() {
  Settings s;
  s.epochs = 20;
  s.batch_size = 128;
  s.optimizer = "sgd";
  s.lr = 0.05;
  s.momentum = 0.9;
  s.nesterov = true;
  s.weight_decay = 5e-4;
  s.schedule = "cosine";
  s.augment = "crop-flip";
  s.normalize = "data";
  return s;
}

struct PresetRow {
  const char* name;
  std::vector<std::string> models;  // empty: all
  Settings (*recipe)();
};

const std::vector<PresetRow>& presets() {
  static const std::vector<PresetRow> rows = {
      {"seed", {}, seed_recipe},
      {"best", {"lenet", "lenet-d2l"}, best_lenet_recipe},
      {"best", {"resnet18", "resnet18-cifar", "resnet18-tv"}, best_resnet_recipe}};
  return rows;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const PresetRow& row : presets()) {
    if (names.empty() || names.back() != row.name) names.emplace_back(row.name);
  }
  return names;
}

void apply_preset(Settings& settings, std::string_view preset) {
  bool known = false;
  for (const PresetRow& row : presets()) {
    if (preset != row.name) continue;
    known = true;
    bool fits = row.models.empty();
    for (const std::string& model : row.models) fits = fits || model == settings.model;
    if (fits) return copy_recipe(row.recipe(), settings);
  }
  const std::vector<std::string> names = preset_names();
  if (known) throw UsageError("there is no preset '" + std::string(preset) + "' for model " + settings.model);
  throw UsageError("--preset is '" + std::string(preset) + "'; expected one of " + join_names(names) +
                   did_you_mean(preset, names));
}

}  // namespace heddle::tools
