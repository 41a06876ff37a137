#include "engine/ops/loss_stats.h"

namespace heddle::ops {

void LossStats::zero() noexcept {
  // Also if they were zeros: a recorded step that has run since then may have left sums, of which nobody told.
  state_->content = Content::stale;
}

void LossStats::move(Tensor place) {
  HEDDLE_CHECK(place.shape() == state_->sums.shape() && place.dtype() == state_->sums.dtype(), "LossStats: sums ",
               state_->sums.shape(), " ", state_->sums.dtype(), " cannot move to ", place.shape(), " ", place.dtype());
  state_->sums = std::move(place);
  state_->content = Content::stale;
}

GradTarget LossStats::target() {
  const bool first = state_->content != Content::sums;
  state_->content = Content::sums;
  return {state_->sums, first ? WriteMode::store : WriteMode::add};
}

Tensor& LossStats::tensor() {
  read();
  state_->content = Content::sums;
  return state_->sums;
}

const Tensor& LossStats::read() {
  if (state_->content == Content::stale) {
    state_->sums.fill_zero();
    state_->content = Content::zeros;
  }
  return state_->sums;
}

}  // namespace heddle::ops
