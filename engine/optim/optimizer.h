// Base of the optimisers: updates ranges of a ParameterBuffer in one pass. A trainer works with this class alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../backend/backend.h"
#include "../backend/step_state.h"
#include "../nn/parameter_buffer.h"

namespace heddle::optim {

// Parameters [first, last) of ParameterBuffer::segments().
struct SegmentRange {
  std::size_t first = 0;
  std::size_t last = 0;
};

// The parameters for which `wanted` is true, as ranges, for the groups of an optimiser. A group is a list of ranges
// with own settings; a parameter in no group is never updated.
std::vector<SegmentRange> select_parameters(const nn::ParameterBuffer& parameters,
                                            const std::function<bool(const nn::ParameterSegment&)>& wanted);

struct StepOptions {
  // Divides the gradient sums by tail()[kWeightSum], for losses with Reduction::sum that leave their sums in the
  // buffer's tail (CrossEntropyOptions::stats); a loss with Reduction::mean has divided already. step() throws
  // InvalidArgument if no loss has left anything there since zero_grad(). false: gradients are used as they are.
  bool divide_by_weight_sum = false;
  // Largest L2 norm of the (divided) gradient, 0: no clipping.
  double max_gradient_norm = 0.0;
  // Computes the norm (see gradient_norm()) without clipping too. It also makes a GPU look for NaN and infinity in the
  // whole gradient before it changes anything, at the price of up to two kernels.
  bool want_gradient_norm = false;
  // After a step that met NaN or infinity all later ones are no-ops, so that a host that looks later finds the weights
  // from before; see StepState. false: only that step is skipped.
  bool halt_on_non_finite = false;
};

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update from the gradients. Frozen parameters (requires_grad off) stay as they are. A gradient that holds NaN or
  // infinity, or a raised tail()[kNonFinite], makes it a no-op, see last_step_skipped(); what a GPU does without
  // want_gradient_norm or clipping when only the gradient is not finite is at Backend::sgd_update.
  // Only queues work: it reads learning rate and counters on the device and writes nothing from the host, so it can be
  // part of a recorded step.
  void step(const StepOptions& options = {});
  void zero_grad() { parameters_.zero_grad(); }

  // The rate of all updates from now on. Queues a copy; not inside a recorded step, and only when it changes.
  void set_learning_rate(double value);
  // The rates of the next updates, one each; the last one holds after them. For schedules: once an epoch. As
  // StepState::set_learning_rates.
  void set_learning_rates(std::span<const double> values);
  // What was set last; of a list its first.
  double learning_rate() const noexcept { return learning_rate_; }
  // Updates done so far (skipped ones not counted). Blocks on a GPU.
  std::int64_t step_count() const { return state_.read(step_slot::kStep); }
  // Steps so far, skipped ones counted: each moves the random streams on. Blocks on a GPU.
  std::int64_t random_count() const { return state_.read(step_slot::kRandom); }
  // Of the last step: whether it met NaN or infinity, and the norm, NaN if neither it nor clipping was asked for. Block
  // on a GPU.
  bool last_step_skipped() const { return state_.read(step_slot::kSkipped) != 0; }
  double gradient_norm() const;
  // Counters, learning rates and records of this training; see step/status_block for a reader that does not block.
  StepState& state() noexcept { return state_; }

  // From now on each update moves an exponential average of the weights with it, in the same pass; see
  // UpdateTensors::averages for the formula and the warm-up of the decay. It begins with the weights of now, so load
  // them before. A skipped update leaves it alone (where a GPU has changed weights of a step that it then counts as
  // skipped, see Backend::sgd_update, the average has followed them), frozen parameters stay as they are in it.
  // Recorded updates keep what they were recorded with: call it before, or StepGraph::clear() after it. It is a state
  // tensor
  // ("average"). Throws: InvalidArgument unless 0 < decay < 1.
  void average_weights(double decay);
  // Flat, in the buffer's layout; undefined without average_weights(). To evaluate them: averaged_weights.h.
  const Tensor& averages() const noexcept { return averages_; }

  // "sgd", "adam", "adamw".
  virtual const char* name() const noexcept = 0;
  // State tensors by name ("momentum"; flat, in the buffer's layout) for checkpoints; scalars: step_count,
  // learning_rate.
  std::vector<std::pair<std::string, Tensor>> state_tensors();
  void restore_counters(std::int64_t step_count, double learning_rate) {
    restore_counters(step_count, step_count, learning_rate);
  }
  // random_count: steps that drew random numbers, skipped ones too.
  void restore_counters(std::int64_t step_count, std::int64_t random_count, double learning_rate);

  nn::ParameterBuffer& parameters() noexcept { return parameters_; }

 protected:
  Optimizer(nn::ParameterBuffer& parameters, double learning_rate);
  // State tensors of the update rule alone.
  virtual std::vector<std::pair<std::string, Tensor>> own_state_tensors() = 0;
  // Updates the groups; the tensors lack the optimiser's own state.
  virtual void update(UpdateTensors& tensors, const UpdateParams& params) = 0;
  // Throws: InvalidArgument if a range is out of bounds or a parameter is in two groups.
  void check_groups(const std::vector<std::vector<SegmentRange>>& groups);
  // What of the groups is to be updated now: frozen parameters left out, neighbours joined.
  template <class Group>
  std::vector<UpdateRange<decltype(Group::params)>> live_ranges(const std::vector<Group>& groups) const {
    std::vector<UpdateRange<decltype(Group::params)>> live;
    for (const Group& group : groups) {
      for (const FlatRange& range : live_ranges(group.ranges)) live.push_back({range.begin, range.numel, group.params});
    }
    return live;
  }
  // Calls update(ranges, params) for at most kMaxUpdateRanges at a time; the last call finishes the update.
  template <class Range, class Update>
  static void for_each_call(std::span<const Range> ranges, UpdateParams params, Update update) {
    do {
      const std::span<const Range> now = ranges.first(std::min(ranges.size(), kMaxUpdateRanges));
      ranges = ranges.subspan(now.size());
      params.finish = ranges.empty();
      update(now, params);
    } while (!ranges.empty());
  }
  // A zeroed state tensor in the buffer's layout.
  Tensor make_state() const;

  nn::ParameterBuffer& parameters_;
  StepState state_;

 private:
  // Elements [begin, begin + numel) of the flat buffers.
  struct FlatRange {
    std::int64_t begin = 0;
    std::int64_t numel = 0;
  };
  std::vector<FlatRange> live_ranges(const std::vector<SegmentRange>& ranges) const;

  std::vector<bool> updated_;  // by segment: it is in a group
  Tensor averages_;            // undefined: none are kept
  double average_decay_ = 0.0;
  Tensor scalars_;         // of prepare_update (step_scalar::kCount)
  bool prepared_ = false;  // the last step called it
  double learning_rate_ = 0.0;
  bool has_one_rate_ = false;  // the rate holds for all updates
};

}  // namespace heddle::optim
