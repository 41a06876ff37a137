#include "tools/saved_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "datasets/fashion_mnist.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/state_dict.h"
#include "models/model_list.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

// Of a file of weights: more than any of the models is used for.
constexpr std::int64_t kMaxClasses = 25000;

// The number of classes by the last bias of the file, if it has it. Throws: IoError if the file contradicts itself.
std::optional<std::int64_t> count_classes(const std::string& path, const std::string& last_bias) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const TensorEntry* const bias = file.find(last_bias);
  if (bias == nullptr || bias->shape.size() != 1 || bias->shape[0] < 1) return std::nullopt;
  const std::int64_t classes = bias->shape[0];
  // Before memory is taken for them.
  if (classes > kMaxClasses) {
    throw IoError(path, fmt::format("'{}' is of {} classes; at most {} are possible", last_bias, classes, kMaxClasses));
  }
  const std::string weight_name = last_bias.substr(0, last_bias.rfind('.')) + ".weight";
  const TensorEntry* const weight = file.find(weight_name);
  if (weight != nullptr && (weight->shape.empty() || weight->shape[0] != classes)) {
    throw IoError(path, fmt::format("'{}' has {} values, and '{}' {} rows", last_bias, classes, weight_name,
                                    weight->shape.empty() ? 0 : weight->shape[0]));
  }
  return classes;
}

// What weights without a description are taken for: a model of Fashion-MNIST, but for the number of classes, which the
// last tensor of the model tells.
ModelDescription describe_weights(const std::string& path, const std::string& model) {
  ModelDescription description{.model = model, .dataset = "fashion-mnist"};
  if (const std::int64_t channels = models::find_model(model).in_channels; channels != 0) {
    description.source_channels = description.channels;
    description.source_height = description.height;
    description.source_width = description.width;
    description.channels = channels;
  }
  description.mean.assign(static_cast<std::size_t>(description.channels), 0.0f);
  description.stddev.assign(static_cast<std::size_t>(description.channels), 1.0f);
  const std::string last = make_model(description)->named_parameters().back().name;
  description.num_classes = count_classes(path, last).value_or(description.num_classes);
  if (description.num_classes == std::ssize(datasets::kFashionMnistClasses)) {
    for (const std::string_view name : datasets::kFashionMnistClasses) description.class_names.emplace_back(name);
  }
  return description;
}

// The state of a checkpoint; nothing if the file holds weights only and the user said what they belong to.
std::optional<checkpoint::TrainingState> read_state(const std::string& path, const std::string& model) {
  if (model.empty()) return checkpoint::read_training_state(path);
  try {
    return checkpoint::read_training_state(path);
  } catch (const IoError&) {
    return std::nullopt;
  }
}

ModelDescription read_description(const checkpoint::TrainingState& state, const std::string& path) {
  try {
    return model_description_from_json(Json::parse(state.settings).at("description"));
  } catch (const Json::exception& error) {
    throw IoError(path, std::string("has no description of its model: ") + error.what());
  } catch (const InvalidArgument& error) {
    throw IoError(path, error.what());
  }
}

}  // namespace

SavedModel load_saved_model(const std::string& checkpoint, const std::string& model, Device device, bool best) {
  SavedModel saved;
  const auto found =
      checkpoint::resolve_checkpoint(checkpoint, best ? checkpoint::Prefer::best : checkpoint::Prefer::newest);
  if (best && std::filesystem::path(found.path).filename() != checkpoint::kBestCheckpoint) {
    const std::string reason = found.skipped.empty() ? std::string("there is none") : found.skipped.front();
    throw UsageError(
        fmt::format("--best: no {} can be used in {}: {}", checkpoint::kBestCheckpoint, checkpoint, reason));
  }
  saved.path = found.path;
  saved.skipped = found.skipped;
  const auto state = read_state(saved.path, model);
  if (state && !model.empty() && state->model != model) {
    throw UsageError(fmt::format("--model {}: {} holds a {}", model, saved.path, state->model));
  }
  saved.description = state ? read_description(*state, saved.path) : describe_weights(saved.path, model);
  saved.module = make_model(saved.description);
  if (state) {
    checkpoint::load_for_use(saved.path, *saved.module, &saved.averaged);
  } else {
    checkpoint::load_weights(saved.path, *saved.module);
  }
  saved.module->to(device);
  saved.module->train(false);
  return saved;
}

}  // namespace heddle::tools
