#include "nccl_comm/batch_norm_replay.h"

#include <algorithm>
#include <cmath>

#include "engine/backend/batch_norm.h"

namespace heddle::comm {
namespace {

using ops::BatchNormPass;

const char* name_of(BatchNormPass pass) { return pass == BatchNormPass::forward ? "forward" : "backward"; }

// What the values of a channel are about as large as, over all channels: the square root of mean^2 + variance.
double size_of_values(const std::vector<double>& part, std::int64_t channels) {
  const auto n = static_cast<std::size_t>(channels);
  const double rows = part[2 * n];
  double sum = 0;
  for (std::size_t c = 0; c < n; ++c) sum += part[c] * part[c] + (rows == 0 ? 0 : part[n + c] / rows);
  return std::sqrt(sum);
}

void compare_parts(BatchNormPass pass, const std::string& name, const std::vector<double>& brought,
                   const std::vector<double>& given, std::int64_t channels, ParityComparison& comparison) {
  const std::array<std::string, 2> who{"in the step of all ranks", "on one rank that works through the same shares"};
  const auto slice = [&](const std::vector<double>& x, std::int64_t begin, std::int64_t n) {
    return std::vector<double>(x.begin() + begin, x.begin() + begin + n);
  };
  const auto compare = [&](const char* what, std::int64_t begin, std::int64_t n, const ParityAllowed& allowed,
                           double terms) {
    comparison.compare_within(allowed, what + name, slice(brought, begin, n), slice(given, begin, n), terms, who);
  };
  // A mean or a sum may be near 0 though its terms are not: how large a part of it a difference is tells nothing.
  const auto within = [](double of_norm, double of_terms) {
    return ParityAllowed{.of_norm = of_norm, .of_terms = of_terms, .in_result = false};
  };
  const double tolerance = comparison.tolerance();
  compare("the number of rows", 2 * channels, 1, within(0.0, 0.0), 0.0);
  if (pass == BatchNormPass::backward) return compare("the pair of sums", 0, 2 * channels, within(tolerance, 0.0), 0.0);
  compare("the mean", 0, channels, within(0.0, tolerance), size_of_values(given, channels));
  compare("the sum of squared differences", channels, channels, within(tolerance, 0.0), 0.0);
}

}  // namespace

BatchNormReplay::BatchNormReplay(nn::SynchronisedBatchNorms* layers, Communicator& communicator)
    : layers_(layers), communicator_(communicator) {}

BatchNormReplay::~BatchNormReplay() {
  if (layers_ != nullptr) layers_->exchange_by({});
}

void BatchNormReplay::record() {
  if (layers_ == nullptr) return;
  recorded_.clear();
  layers_->exchange_by([this](const std::string& layer, BatchNormPass pass, const Tensor& own, Tensor& all) {
    layers_->gather(pass, own, all);
    if (communicator_.rank() == 0) recorded_.push_back({layer, pass, all.to_vector<double>()});
  });
}

void BatchNormReplay::begin_share(int share, ParityComparison& comparison) {
  if (layers_ == nullptr) return;
  next_ = 0;
  share_ = share;
  layers_->exchange_by([this, &comparison](const std::string& layer, BatchNormPass pass, const Tensor& own,
                                           Tensor& all) { meet(layer, pass, own, all, comparison); });
}

void BatchNormReplay::end_share(ParityComparison& comparison) {
  if (layers_ == nullptr || next_ == recorded_.size()) return;
  comparison.fail(join_text("the batch norms exchanged ", recorded_.size(), " times with ", communicator_.world_size(),
                            " ranks and ", next_, " times on one rank for share ", share_));
}

void BatchNormReplay::meet(const std::string& layer, BatchNormPass pass, const Tensor& own, Tensor& all,
                           ParityComparison& comparison) {
  const std::vector<double> given = own.to_vector<double>();
  const std::size_t number = next_++;
  const bool known =
      number < recorded_.size() && recorded_[number].layer == layer && recorded_[number].pass == pass &&
      recorded_[number].parts.size() == given.size() * static_cast<std::size_t>(communicator_.world_size());
  if (known) {
    const std::int64_t channels = (own.numel() - batch_norm_exchange_numel(0)) / 2;
    const std::vector<double>& parts = recorded_[number].parts;
    const auto brought = parts.begin() + share_ * own.numel();
    // Later differences would only follow from the first one.
    if (comparison.problem().empty()) {
      compare_parts(pass,
                    join_text(" of share ", share_, " of ", communicator_.world_size(), " in the ", name_of(pass),
                              " pass of the batch norm '", layer, "'"),
                    {brought, brought + own.numel()}, given, channels, comparison);
    }
    all.copy_from(Tensor::from_values(parts, all.shape(), all.device()));
  } else {
    comparison.fail(join_text("exchange ", number + 1, " of the batch norms is of the ", name_of(pass), " pass of '",
                              layer, "' on one rank, and ranks ",
                              number < recorded_.size() ? "make another one" : "make none there"));
    // Something finite to go on with.
    for (int rank = 0; rank < communicator_.world_size(); ++rank) {
      all.narrow(rank, 1).copy_from(own.reshape({1, own.numel()}));
    }
  }
}

}  // namespace heddle::comm
