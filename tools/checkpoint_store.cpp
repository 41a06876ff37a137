#include "tools/checkpoint_store.h"

#include <fmt/format.h>

#include "tools/config_file.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

Json to_json(const EpochSums& sums) {
  return {{"loss", sums.metrics.loss_sum()},
          {"weight", sums.metrics.weight_sum()},
          {"correct", sums.metrics.correct()},
          {"samples", sums.metrics.samples()},
          {"seconds", sums.seconds}};
}

// Throws: Json::exception.
EpochSums sums_from_json(const Json& json) {
  EpochSums sums;
  sums.metrics.add(json.at("loss").get<double>(), json.at("weight").get<double>(),
                   json.at("correct").get<std::int64_t>(), json.at("samples").get<std::int64_t>());
  sums.seconds = json.at("seconds").get<double>();
  return sums;
}

// A run's settings are in its description, which people can edit, and in each checkpoint.
void check_settings(const Json& saved, const Settings& settings, const std::string& path) {
  const Json own = settings_to_json(settings);
  std::string differences;
  for (const Setting& row : setting_table()) {
    if (row.may_change || !saved.contains(row.name) || saved[row.name] == own[row.name]) continue;
    differences += fmt::format("{}--{} {} (the checkpoint has {})", differences.empty() ? "" : ", ", row.name,
                               own[row.name].dump(), saved[row.name].dump());
  }
  if (differences.empty()) return;
  throw UsageError(fmt::format("{} was trained with other settings than run.json has: {}", path, differences));
}

}  // namespace

CheckpointStore::CheckpointStore(const std::string& folder, const Settings& settings, ModelDescription description)
    : folder_(folder, static_cast<int>(settings.keep)), settings_(settings), description_(std::move(description)) {}

std::string CheckpointStore::save(Trainer& trainer, bool is_best) {
  checkpoint::TrainingState state = trainer.state();
  const Json extra = {{"settings", settings_to_json(settings_)},
                      {"description", to_json(description_)},
                      {"epoch_sums", to_json(trainer.sums())}};
  state.settings = extra.dump(-1, ' ', false, Json::error_handler_t::replace);
  return folder_.save(trainer.model(), &trainer.optimizer(), state, is_best);
}

void CheckpointStore::load(Trainer& trainer, const std::string& path, const Settings& settings) {
  const checkpoint::TrainingState saved = checkpoint::read_training_state(path);
  EpochSums sums;
  try {
    const Json extra = Json::parse(saved.settings);
    check_settings(extra.value("settings", Json::object()), settings, path);
    sums = sums_from_json(extra.at("epoch_sums"));
  } catch (const Json::exception& error) {
    throw IoError(path, std::string("was not written by heddle train: ") + error.what());
  }
  const std::int64_t total_epochs = trainer.state().total_epochs;
  trainer.state() = checkpoint::load_checkpoint(path, trainer.model(), &trainer.optimizer());
  trainer.state().total_epochs = total_epochs;
  trainer.sums() = sums;
}

std::string CheckpointStore::find_newest(std::vector<std::string>& broken) const {
  const auto found = checkpoint::find_checkpoint(folder_.folder());
  if (!found) return {};
  broken.insert(broken.end(), found->skipped.begin(), found->skipped.end());
  return found->path;
}

std::string CheckpointStore::newest() const {
  const auto found = checkpoint::find_checkpoint(folder_.folder());
  return found ? found->path : std::string();
}

}  // namespace heddle::tools
