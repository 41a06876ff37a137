#include "engine/checkpoint/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "engine/checkpoint/averages.h"
#include "engine/checkpoint/checksum.h"
#include "engine/checkpoint/state_dict.h"
#include "engine/checkpoint/training_state.h"
#include "engine/core/text.h"

namespace heddle::checkpoint {
namespace {

constexpr std::string_view kOptimizerPrefix = "optimizer/";
constexpr std::string_view kAverage = "average";  // the state tensor that is kept parameter by parameter

TensorToWrite to_write(std::string name, const Tensor& host) {
  const auto dims = host.shape().dims();
  return {std::move(name), safetensors_type_for(host.dtype()), {dims.begin(), dims.end()}, host.raw_data()};
}

detail::StateRecord read_record(const SafetensorsFile& file) {
  return detail::from_metadata(file.metadata(), file.path());
}

void require_checksum(const SafetensorsFile& file) {
  if (!verify_checksum(file)) throw IoError(file.path(), "is damaged: a checkpoint without its checksum");
}

// Host copies of the optimiser's tensors, in the order of state_tensors().
std::vector<Tensor> read_optimizer(const SafetensorsFile& file, const detail::StateRecord& record,
                                   const nn::Module& model, optim::Optimizer& optimizer) {
  const auto refuse = [&](const std::string& reason) { throw IoError(file.path(), "does not fit: " + reason); };
  if (!record.optimizer.has_value()) refuse("it was saved without an optimiser");
  if (record.optimizer->name != optimizer.name()) {
    refuse(join_text("it was made with optimizer ", record.optimizer->name, ", this run uses ", optimizer.name()));
  }
  std::vector<Tensor> values;
  std::vector<std::string> known;
  for (const auto& [name, tensor] : optimizer.state_tensors()) {
    if (name == kAverage) {
      values.push_back(detail::read_flat_averages(model, optimizer.parameters(), file));
      for (const nn::NamedVariable& p : model.named_parameters()) known.push_back(detail::average_name(p.name));
      continue;
    }
    known.push_back(std::string(kOptimizerPrefix) + name);
    const TensorEntry* const entry = file.find(known.back());
    if (entry == nullptr) refuse(join_text("it has no state '", name, "' that ", optimizer.name(), " needs here"));
    const std::vector<std::int64_t> wanted(tensor.shape().dims().begin(), tensor.shape().dims().end());
    if (entry->type != safetensors_type_for(tensor.dtype()) || entry->shape != wanted) {
      refuse(join_text("optimiser state '", name, "' has ", entry->numel(), " elements of ", name_of(entry->type),
                       ", this run needs ", tensor.numel(), " of ", tensor.dtype()));
    }
    values.push_back(Tensor::empty(tensor.shape(), tensor.dtype()));
    file.read(*entry, values.back().mutable_raw_data());
  }
  for (const TensorEntry& entry : file.entries()) {
    if (entry.name.compare(0, kOptimizerPrefix.size(), kOptimizerPrefix) != 0) continue;
    if (std::find(known.begin(), known.end(), entry.name) == known.end()) {
      refuse(join_text("it has optimiser state '", entry.name.substr(kOptimizerPrefix.size()), "', which ",
                       optimizer.name(), " does not have with this run's settings"));
    }
  }
  return values;
}

void check_streams(const std::string& path, const detail::StateRecord& record,
                   const std::vector<std::pair<std::string, RandomStream*>>& streams) {
  bool same = streams.size() == record.random_streams.size();
  for (const auto& [name, stream] : streams) same = same && record.random_streams.count(name) == 1;
  if (!same) {
    throw IoError(path, join_text("does not fit the model: it has ", record.random_streams.size(),
                                  " random streams, the model ", streams.size(), ", or their layers differ"));
  }
}

}  // namespace

void save_checkpoint(const std::string& path, nn::Module& model, optim::Optimizer* optimizer,
                     const TrainingState& state) {
  HEDDLE_CHECK(!state.best_metric.has_value() || std::isfinite(*state.best_metric), "save_checkpoint: best metric ",
               state.best_metric.value_or(0), " is not finite");
  detail::StateRecord record{.training = state};
  StateDict tensors = state_dict(model);
  for (const auto& [name, stream] : model.named_random_streams()) record.random_streams[name] = *stream;
  if (optimizer != nullptr) {
    record.optimizer = detail::OptimizerState{optimizer->name(), optimizer->step_count(), optimizer->random_count(),
                                              optimizer->learning_rate()};
    for (const auto& [name, tensor] : optimizer->state_tensors()) {
      if (name == kAverage) {
        StateDict averages = detail::split_averages(model, optimizer->parameters(), tensor.to(Device::cpu()));
        std::move(averages.begin(), averages.end(), std::back_inserter(tensors));
        continue;
      }
      tensors.emplace_back(std::string(kOptimizerPrefix) + name, tensor.to(Device::cpu()));
    }
  }
  std::vector<TensorToWrite> list;
  for (const auto& [name, tensor] : tensors) list.push_back(to_write(name, tensor));
  write_with_checksum(path, list, detail::to_metadata(record));
}

namespace {

TrainingState load(const std::string& path, nn::Module& model, optim::Optimizer* optimizer, bool* averaged) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const detail::StateRecord record = read_record(file);
  const auto streams = model.named_random_streams();
  check_streams(path, record, streams);
  std::vector<Tensor> values = read_state(model, file, kOptimizerPrefix);
  if (averaged != nullptr) {
    *averaged = detail::has_averages(file);
    // Parameters come before the buffers.
    if (*averaged) {
      std::vector<Tensor> averages = detail::read_averages(model, file);
      std::move(averages.begin(), averages.end(), values.begin());
    }
  }
  std::vector<Tensor> optimizer_values;
  if (optimizer != nullptr) optimizer_values = read_optimizer(file, record, model, *optimizer);
  require_checksum(file);
  // Nothing below fails for what a file holds.
  apply_state(model, values);
  for (const auto& [name, stream] : streams) {
    const RandomStream& saved = record.random_streams.at(name);
    stream->seed = saved.seed;
    stream->offset = saved.offset;
  }
  if (optimizer != nullptr) {
    auto tensors = optimizer->state_tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].second.copy_from(optimizer_values[i]);
    optimizer->restore_counters(record.optimizer->step_count, record.optimizer->random_count,
                                record.optimizer->learning_rate);
  }
  return record.training;
}

}  // namespace

TrainingState load_checkpoint(const std::string& path, nn::Module& model, optim::Optimizer* optimizer) {
  return load(path, model, optimizer, nullptr);
}

TrainingState load_for_use(const std::string& path, nn::Module& model, bool* averaged) {
  bool found = false;
  return load(path, model, nullptr, averaged == nullptr ? &found : averaged);
}

TrainingState read_training_state(const std::string& path) { return read_record(SafetensorsFile::open(path)).training; }

void verify_checkpoint(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  read_record(file);
  require_checksum(file);
}

}  // namespace heddle::checkpoint
