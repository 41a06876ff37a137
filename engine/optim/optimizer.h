// Base of the optimisers: updates ranges of a ParameterBuffer in one pass. A trainer works with this class alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

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

// Elements [begin, begin + numel) of the flat buffers.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t numel = 0;
};

struct StepOptions {
  // Divides the gradient sums by tail()[kWeightSum] (losses with reduction sum); false: gradients are used as they are.
  bool divide_by_weight_sum = false;
  // Largest L2 norm of the (divided) gradient, 0: no clipping.
  double max_gradient_norm = 0.0;
  // Computes the norm (see gradient_norm()) without clipping too.
  bool want_gradient_norm = false;
};

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update from the gradients. Frozen parameters (requires_grad off) stay as they are. A gradient that holds NaN or
  // infinity, or a raised tail()[kNonFinite], makes it a no-op: see last_step_skipped().
  void step(const StepOptions& options = {});
  void zero_grad() { parameters_.zero_grad(); }

  double learning_rate() const noexcept { return learning_rate_; }
  void set_learning_rate(double value);
  // Updates done so far (skipped ones not counted).
  std::int64_t step_count() const noexcept { return step_count_; }
  // Of the last step. Block on a GPU.
  bool last_step_skipped() const;
  double gradient_norm() const;

  // "sgd", "adam", "adamw".
  virtual const char* name() const noexcept = 0;
  // State tensors by name ("momentum"; flat, in the buffer's layout) for checkpoints; scalars: step_count,
  // learning_rate.
  virtual std::vector<std::pair<std::string, Tensor>> state_tensors() = 0;
  void restore_counters(std::int64_t step_count, double learning_rate);

  nn::ParameterBuffer& parameters() noexcept { return parameters_; }

 protected:
  Optimizer(nn::ParameterBuffer& parameters, double learning_rate);
  // Updates everything with scalars filled in (see Backend::sgd_update).
  virtual void update(const Tensor& scalars) = 0;
  // Throws: InvalidArgument if a range is out of bounds or a parameter is in two groups.
  void check_groups(const std::vector<std::vector<SegmentRange>>& groups) const;
  // What of the ranges is to be updated now: frozen parameters left out, neighbours joined.
  std::vector<FlatRange> live_ranges(const std::vector<SegmentRange>& ranges) const;
  // A zeroed state tensor in the buffer's layout.
  Tensor make_state() const;

  nn::ParameterBuffer& parameters_;

 private:
  void write_scalars();

  Tensor scalars_;    // (step_scalar::kCount)
  Tensor unit_tail_;  // the tail with weight sum 1
  double learning_rate_;
  std::int64_t step_count_ = 0;
};

}  // namespace heddle::optim
