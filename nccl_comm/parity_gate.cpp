#include "nccl_comm/parity_gate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/autograd/backward.h"
#include "nccl_comm/batch_norm_replay.h"
#include "nccl_comm/drift_monitor.h"
#include "nccl_comm/parity_comparison.h"
#include "nccl_comm/text_exchange.h"

namespace heddle::comm {
namespace {

// Gradients of each share are rounded, and the sum of all. Source: |fl(x) - x| <= 2^-p |x| for p significant bits
// (Higham, "Accuracy and Stability of Numerical Algorithms", section 2.1); bf16 has 8.
ParityAllowed allowed_of_gradients(const ParityOptions& options) {
  if (options.reduce_dtype == DType::f32) return {options.tolerance};
  constexpr double kUnit = 0x1p-8;
  return {options.tolerance + kUnit, kParityRounding + kUnit * (1 + kUnit)};
}

// Everything that a step changes.
class SavedState {
 public:
  SavedState(nn::Module& model, optim::Optimizer& optimizer) : model_(model), optimizer_(optimizer) {
    weights_ = optimizer.parameters().data().clone();
    for (const auto& [name, tensor] : optimizer.state_tensors()) states_.push_back(tensor.clone());
    counters_ = optimizer.state().counters().clone();
    for (const nn::NamedVariable& b : model.named_buffers()) buffers_.push_back(b.variable.data().clone());
    for (const auto& [name, stream] : model.named_random_streams()) streams_.push_back(*stream);
  }

  const Tensor& weights() const noexcept { return weights_; }

  void restore() const {
    nn::ParameterBuffer& parameters = optimizer_.parameters();
    parameters.data().copy_from(weights_);
    parameters.mark_changed();
    std::size_t i = 0;
    for (auto& [name, tensor] : optimizer_.state_tensors()) tensor.copy_from(states_[i++]);
    // The sequence of records goes on: a record that was written would otherwise be met again.
    Tensor& counters = optimizer_.state().counters();
    for (std::int64_t slot = 0; slot < step_slot::kCount; ++slot) {
      if (slot != step_slot::kSequence) counters.narrow(slot, 1).copy_from(counters_.narrow(slot, 1));
    }
    i = 0;
    for (nn::NamedVariable& b : model_.named_buffers()) b.variable.mutable_data().copy_from(buffers_[i++]);
    i = 0;
    for (const auto& [name, stream] : model_.named_random_streams()) *stream = streams_[i++];
    parameters.zero_grad();
  }

  // The place of a share's random numbers: RandomStreams gives 2^40 to each.
  void use_streams_of(int share) const {
    for (const auto& [name, stream] : model_.named_random_streams()) {
      stream->offset = static_cast<std::uint64_t>(share) << 40;
    }
  }

 private:
  nn::Module& model_;
  optim::Optimizer& optimizer_;
  Tensor weights_, counters_;
  std::vector<Tensor> states_, buffers_;
  std::vector<RandomStream> streams_;
};

// Sums of one rank that works through all shares.
struct Reference {
  std::vector<double> sums;             // gradients with their tail
  std::vector<double> parameter_terms;  // by parameter: sum over the shares of the norm of their gradients
};

data::Batch narrow(const data::Batch& batch, std::int64_t begin, std::int64_t n) {
  return {batch.images.narrow(begin, n), batch.labels.narrow(begin, n)};
}

// The gradients that were computed since zero_grad(), with their tail.
std::vector<double> gradients_with_tail(nn::ParameterBuffer& parameters) {
  parameters.finish_gradients();
  const std::vector<float> values = parameters.gradients_with_tail().to_vector<float>();
  return {values.begin(), values.end()};
}

// Gradients of rank 0, share by share, as doubles.
class ShareSums {
 public:
  explicit ShareSums(const std::vector<nn::ParameterSegment>& segments) : segments_(segments) {
    sums_.sums.assign(static_cast<std::size_t>(segments.back().end + tail_slot::kCount), 0.0);
    sums_.parameter_terms.assign(segments.size(), 0.0);
  }
  void add(const std::vector<double>& gradients) {
    for (std::size_t i = 0; i < gradients.size(); ++i) sums_.sums[i] += gradients[i];
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      sums_.parameter_terms[s] += norm_of(gradients.data() + segments_[s].begin, segments_[s].numel);
    }
  }
  Reference take() { return std::move(sums_); }

 private:
  const std::vector<nn::ParameterSegment>& segments_;
  Reference sums_;
};

// Where share `number` of a batch begins and ends; the larger ones come first, by one image at most.
struct Share {
  std::int64_t begin, size;
};
Share share_of(std::int64_t images, int shares, int number) {
  const std::int64_t least = images / shares, larger = images % shares;
  return {least * number + std::min<std::int64_t>(number, larger), least + (number < larger ? 1 : 0)};
}

data::Batch piece_of(const data::Batch& whole, const Share& share, std::int64_t piece, std::int64_t pieces) {
  const std::int64_t first = share.size * piece / pieces, last = share.size * (piece + 1) / pieces;
  return narrow(whole, share.begin + first, last - first);
}

// Rank 0 works, the others wait: at each piece for the time of one only, since every wait has a deadline.
Reference run_shares(const ParitySubject& subject, Communicator& communicator, const SavedState& state,
                     std::int64_t images, BatchNormReplay& batch_norms, ParityComparison& comparison) {
  const int shares = subject.shares > 0 ? subject.shares : communicator.world_size();
  const bool works = communicator.rank() == 0;
  ShareSums sums(subject.optimizer.parameters().segments());
  const data::Batch whole = works ? subject.load_whole(images) : data::Batch{};
  for (int number = 0; number < shares; ++number) {
    const Share share = share_of(images, shares, number);
    const std::int64_t pieces = subject.synchronised != nullptr
                                    ? synchronised_pieces(images, {.shares = shares, .pieces = subject.pieces})
                                    : std::min(subject.pieces, share.size);
    if (works) {
      state.use_streams_of(number);
      subject.optimizer.zero_grad();
      batch_norms.begin_share(number, comparison);
    }
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      if (works) backward(subject.loss(piece_of(whole, share, piece, pieces)));
      communicator.barrier("a piece of the parity gate");
    }
    if (!works) continue;
    batch_norms.end_share(comparison);
    if (pieces > 0) sums.add(gradients_with_tail(subject.optimizer.parameters()));
  }
  return works ? sums.take() : Reference{};
}

std::vector<double> divided(const double* x, std::int64_t n, double divisor) {
  std::vector<double> result(x, x + n);
  for (double& value : result) value /= divisor;
  return result;
}

// Gradients as a step before may have left them, so that a training that does not begin with zeros is found. What lies
// between the parameters and what is frozen stays zero.
void leave_gradients(nn::ParameterBuffer& parameters) {
  parameters.finish_gradients();
  for (const nn::ParameterSegment& segment : parameters.segments()) {
    Tensor gradient = segment.gradient;
    if (segment.variable.requires_grad()) gradient.copy_from(Tensor::full(gradient.shape(), 1.0));
  }
  Tensor& tail = parameters.tail().tensor();
  tail.copy_from(Tensor::full(tail.shape(), 1.0));
}

void compare_gradients(const std::vector<nn::ParameterSegment>& segments, const std::vector<double>& sums,
                       const Reference& reference, int ranks, const ParityOptions& options,
                       ParityComparison& comparison) {
  const std::array<std::string, 2> who{join_text("with ", ranks, " ranks"),
                                       "on one rank that works through the same shares"};
  const double* const tail = sums.data() + segments.back().end;
  const double* const wanted_tail = reference.sums.data() + segments.back().end;
  const double weight_sum = wanted_tail[tail_slot::kWeightSum];
  const auto compare_sum = [&](const char* name, std::int64_t slot, double allowed, double terms) {
    comparison.compare_within({allowed}, name, {tail[slot]}, {wanted_tail[slot]}, terms, who);
  };
  compare_sum("the weight sum", tail_slot::kWeightSum, kParityRounding, 0.0);
  compare_sum("the number of samples", tail_slot::kSamples, 0.0, 0.0);
  const auto met = [](const double* values) { return values[tail_slot::kNonFinite] > 0 ? 1.0 : 0.0; };
  comparison.compare_within({0.0}, "the mark of a NaN or infinity", {met(tail)}, {met(wanted_tail)}, 0.0, who);
  // All gradients would be wrong then.
  if (!comparison.problem().empty()) return;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const nn::ParameterSegment& segment = segments[s];
    comparison.compare_within(allowed_of_gradients(options), join_text("the gradient of '", segment.name, "'"),
                              divided(sums.data() + segment.begin, segment.numel, tail[tail_slot::kWeightSum]),
                              divided(reference.sums.data() + segment.begin, segment.numel, weight_sum),
                              reference.parameter_terms[s] / weight_sum, who);
  }
  // Losses may be of both signs or near zero: their rounding goes with the weights.
  if (comparison.problem().empty())
    compare_sum("the loss", tail_slot::kLossSum, options.tolerance, std::abs(weight_sum));
}

// The trainer's update, from gradients that are divided already.
std::vector<float> update_divided(const ParitySubject& subject, const std::vector<double>& sums) {
  nn::ParameterBuffer& parameters = subject.optimizer.parameters();
  const auto n = parameters.segments().back().end;
  std::vector<float> values(sums.begin(), sums.end());
  const double weight_sum = sums[static_cast<std::size_t>(n + tail_slot::kWeightSum)];
  for (std::int64_t i = 0; i < n; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<float>(sums[static_cast<std::size_t>(i)] / weight_sum);
  }
  values[static_cast<std::size_t>(n + tail_slot::kWeightSum)] = 1.f;
  parameters.zero_grad();
  parameters.finish_gradients();
  // Tells the tail that it holds sums.
  parameters.tail().tensor();
  parameters.gradients_with_tail().copy_from(Tensor::from_values(values, {n + tail_slot::kCount}));
  subject.update();
  return parameters.data().to_vector<float>();
}

void compare_updates(const std::vector<nn::ParameterSegment>& segments, const std::vector<float>& before,
                     const std::vector<float>& after, const std::vector<float>& wanted, ParityComparison& comparison) {
  const std::array<std::string, 2> who{"as the training makes it", "from gradients divided by the weight sum before"};
  for (const nn::ParameterSegment& segment : segments) {
    std::vector<double> change, wanted_change, start;
    for (auto i = static_cast<std::size_t>(segment.begin); i < static_cast<std::size_t>(segment.begin + segment.numel);
         ++i) {
      start.push_back(double{before[i]});
      change.push_back(double{after[i]} - double{before[i]});
      wanted_change.push_back(double{wanted[i]} - double{before[i]});
    }
    comparison.compare(join_text("the update of '", segment.name, "'"), change, wanted_change,
                       norm_of(start.data(), segment.numel), who);
  }
}

// What is wrong with one batch, as this rank sees it; empty if nothing.
std::string check_batch(const ParitySubject& subject, Communicator& communicator, std::int64_t images,
                        const ParityOptions& options, ParityResult& result) {
  nn::ParameterBuffer& parameters = subject.optimizer.parameters();
  const auto& segments = parameters.segments();
  const std::vector<ReplicaTensor> replica = replica_state(subject.optimizer);
  const SavedState state(subject.model, subject.optimizer);
  std::vector<ReplicaTensor> before = replica;
  for (ReplicaTensor& buffer : replica_buffers(subject.model)) before.push_back(std::move(buffer));
  const std::string begins = compare_replicas(communicator, before);
  leave_gradients(parameters);
  ParityComparison comparison(options.tolerance);
  BatchNormReplay batch_norms(subject.synchronised, communicator);
  batch_norms.record();
  subject.sum_gradients(images);
  const std::vector<float> values = parameters.gradients_with_tail().to_vector<float>();
  const std::vector<double> sums(values.begin(), values.end());
  subject.update();
  const std::string ends = compare_replicas(communicator, replica);
  const std::vector<float> after = parameters.data().to_vector<float>();
  state.restore();
  const Reference reference = run_shares(subject, communicator, state, images, batch_norms, comparison);
  state.restore();
  if (communicator.rank() == 0 && comparison.problem().empty()) {
    compare_gradients(segments, sums, reference, communicator.world_size(), options, comparison);
  }
  if (comparison.problem().empty()) {
    const std::vector<float> wanted = update_divided(subject, sums);
    state.restore();
    compare_updates(segments, state.weights().to_vector<float>(), after, wanted, comparison);
  }
  if (comparison.result().largest > result.largest) result = comparison.result();
  if (!comparison.problem().empty()) return comparison.problem();
  if (!begins.empty()) return begins + " before the step";
  return ends.empty() ? ends : ends + " after the step";
}

}  // namespace

std::vector<std::int64_t> parity_batches(std::int64_t batch_size, std::int64_t dataset_size, int ranks,
                                         const BatchCut& cut, bool with_batch_norm) {
  HEDDLE_CHECK(batch_size >= 1 && dataset_size >= 1 && ranks >= 1, "parity_batches: batches of ", batch_size, " of ",
               dataset_size, " images on ", ranks, " ranks");
  const std::int64_t full = std::min(batch_size, dataset_size);
  if (full % ranks != 0 || ranks == 1) return {full};
  const auto serves = [&](std::int64_t images) {
    return images % ranks != 0 && (!with_batch_norm || !has_pass_of_one(images, images, cut));
  };
  // A small one is enough: rank 0 works through all of it alone.
  std::int64_t small = std::min(std::int64_t{3} * ranks, full) - 1;
  const std::int64_t last = dataset_size % full;
  if (last < small && last > 0 && serves(last)) return {full, last};
  while (small < full && !serves(small)) ++small;
  if (small == full) return {full};
  return {full, small};
}

ParityResult check_parity(const ParitySubject& subject, Communicator& communicator,
                          const std::vector<std::int64_t>& batches, const ParityOptions& options) {
  HEDDLE_CHECK(subject.synchronised == nullptr || subject.shares == 0 || subject.shares == communicator.world_size(),
               "check_parity: synchronised batch norms exchange by rank, and ", subject.shares, " shares are asked of ",
               communicator.world_size(), " ranks");
  ParityResult result;
  const Device device = subject.optimizer.parameters().device();
  for (const std::int64_t images : batches) {
    const std::string mine = check_batch(subject, communicator, images, options, result);
    for (const std::string& problem : all_gather_text(communicator, mine, device, "verdict of the parity gate")) {
      if (problem.empty()) continue;
      throw CommError(
          join_text("parity gate, batch of ", images, " images on ", communicator.world_size(), " ranks: ", problem));
    }
  }
  return result;
}

}  // namespace heddle::comm
