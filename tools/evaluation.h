// Runs a model over a data set without training it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/comm/communicator.h"
#include "engine/data/data_loader.h"
#include "engine/data/metrics.h"
#include "engine/nn/module.h"
#include "engine/step/step_graph.h"
#include "nccl_comm/micro_shards.h"

namespace heddle::tools {

struct Evaluation {
  data::RunningMetrics metrics;  // cross-entropy without label smoothing, and right answers
  data::ConfusionMatrix confusion;
  bool finished = true;  // false: stopped by keep_going
};

// Evaluation mode and no history while it lives.
class InferenceScope {
 public:
  explicit InferenceScope(nn::Module& model) : InferenceScope(std::vector<nn::Module*>{&model}) {}
  explicit InferenceScope(const std::vector<nn::Module*>& models);
  ~InferenceScope();
  InferenceScope(const InferenceScope&) = delete;
  InferenceScope& operator=(const InferenceScope&) = delete;

 private:
  std::vector<std::pair<nn::Module*, bool>> models_;  // and whether they were training
  NoGradGuard no_grad_;
};

// Evaluates one model on one data set again and again. A pass reads every image once, in the order of the file,
// normalised as the options say; their shuffling and augmentation are not used. On a GPU each batch is a recorded step:
// in a pass the host waits and copies only at its end, for the results.
class Evaluator {
 public:
  // Model, data set, communicator and shards must outlive it, and the model's parameters must stay where they are.
  // record: false calls each batch, for debugging. With a communicator each rank evaluates its share of every batch,
  // and all get the result of the whole. shards: those of the model; each batch is then cut like a training batch, and
  // the result has the same bits for all numbers of ranks and threads.
  Evaluator(nn::Module& model, const data::ResidentDataset& dataset, const data::DataLoaderOptions& options,
            bool record = true, comm::Communicator* communicator = nullptr, comm::MicroShards* shards = nullptr);
  // keep_going is asked between batches; returning false stops, with a communicator all ranks. Throws: what the model
  // throws; CommError.
  Evaluation run(const std::function<bool()>& keep_going = {});

 private:
  // What evaluates one share of each batch. row and places say where the share at hand goes in the results, and move on
  // from batch to batch: they are read on the device, so that a recorded batch finds its place.
  struct Part {
    nn::Module* model;
    data::DataLoader loader;
    std::int64_t number;  // of the share
    Tensor batch_sums;    // f32 (tail_slot::kCount): of the batch at hand
    Tensor row;           // i64 (1)
    Tensor places;        // i64 (batch)
  };

  void add_part(nn::Module& model, int number, int parts);
  std::vector<nn::Module*> models() const;
  void rewind();
  void evaluate_batch(std::int64_t images);
  void evaluate_part(Part& part, std::int64_t images);
  // Whether this or another rank was stopped.
  bool any_stopped(bool stopped);
  Evaluation read_results();

  const data::ResidentDataset& dataset_;
  data::DataLoader batches_;  // whole; counts them
  step::StepGraph graph_;
  comm::Communicator* communicator_;
  comm::MicroShards* shards_;  // null: the model itself
  bool in_shards_;
  std::int64_t rows_;        // of sums_ for each batch
  std::vector<Part> parts_;  // this rank's
  Tensor sums_;              // f32 (batches * rows_, tail_slot::kCount)
  Tensor predictions_;       // i64 (images, 1)
  Tensor first_places_;      // i64 (batch): 0, 1, ...
};

// One pass.
Evaluation evaluate(nn::Module& model, const data::ResidentDataset& dataset, const data::DataLoaderOptions& options);

}  // namespace heddle::tools
