// Proves a data-parallel training before it starts: one step of all ranks against the same step on a single rank. Used
// by trainers. What it checks with shares nothing with what it checks: no DataParallel, no buckets, no sharded loader,
// and no communicator has a part in the single rank's sums.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <heddle/comm/communicator.h>
#include <heddle/data/data_loader.h>
#include <heddle/nn/batch_norm.h>
#include <heddle/nn/module.h>
#include <heddle/optim/optimizer.h>
#include "batch_cut.h"

namespace heddle::comm {

// One rank's training, in the parts that the gate needs. All of it must outlive the gate.
struct ParitySubject {
  nn::Module& model;
  optim::Optimizer& optimizer;
  // The step of all ranks on the next `images` images, up to the update: zero_grad(), this rank's share, backward,
  // exchange. Begins at the same place of the data each time.
  std::function<void(std::int64_t images)> sum_gradients;
  // The update from those sums, which divides by the weight sum.
  std::function<void()> update;
  // For the single rank: the whole batch whose shares sum_gradients() works on.
  std::function<data::Batch(std::int64_t images)> load_whole;
  // The loss of images as a sum, with its sums in the parameters' tail.
  std::function<Variable(const data::Batch& batch)> loss;
  // Pieces, as equal as can be, in which sum_gradients() computes a share; fewer if a share has fewer images.
  std::int64_t pieces = 1;
  // Shares of a batch, each with random streams of its own; 0: one a rank.
  int shares = 0;
  // The model's batch norms that see the batch of all ranks at once, or null: sum_gradients() computes the same number
  // of pieces on every rank then, synchronised_pieces(), and each rank is a share.
  nn::SynchronisedBatchNorms* synchronised = nullptr;
};

struct ParityOptions {
  // Largest allowed ||a - b|| / ||b|| of a parameter's gradient and of its update.
  double tolerance = 1e-4;
  // What sum_gradients() rounds the gradients of a share to, and their sum once more: both roundings are allowed on
  // top.
  DType reduce_dtype = DType::f32;
};

struct ParityResult {
  double largest = 0.0;   // relative difference that was found
  std::string parameter;  // where; empty if everything was equal
};

// Sizes of the batches to check: a full one and, unless that is so, a ragged one, which the ranks cannot share evenly:
// the last one of the epoch, or else a small one. with_batch_norm: none of them makes a pass of one image, if there is
// such a ragged one.
std::vector<std::int64_t> parity_batches(std::int64_t batch_size, std::int64_t dataset_size, int ranks,
                                         const BatchCut& cut = {}, bool with_batch_norm = false);

// For each of the batches: the ranks do a step; then rank 0 works through the shares of all ranks one after the other,
// adds their gradients up in double and divides by the weight sum. Synchronised batch norms hand it what the ranks have
// exchanged; what each rank has brought must be what its share gives. Must agree: the divided
// gradient of each parameter, weight sum, loss and number of samples; the update, with that of gradients that were
// divided before; and, bit for bit, state and buffers of all ranks before the step and their state behind it. Takes as
// long as one share and then all shares one after the other; meanwhile each rank has a copy of weights and state, and
// of gradients on the host.
//
// Afterwards weights, state of the optimiser, counters, buffers and random streams are what they were, bit for bit, if
// the subject's functions leave nothing else behind (StepState's record ring and kSequence move on). Gradients are
// fresh. Dropout needs the streams of nn::RandomStreams to agree. A step whose loss is not finite on both sides is
// passed over: the training will meet it. Blocks; all ranks call it.
//
// Throws: CommError on all ranks with the same text: the worst parameter, or the first batch norm whose exchange is
// wrong, with both norms and the relative difference. InvalidArgument for shares that do not go with `synchronised`.
ParityResult check_parity(const ParitySubject& subject, Communicator& communicator,
                          const std::vector<std::int64_t>& batches, const ParityOptions& options = {});

}  // namespace heddle::comm
