#include "nccl_comm/data_parallel.h"

#include <algorithm>
#include <sstream>

#include "engine/backend/backend.h"
#include "engine/device/device_runtime.h"
#include "nccl_comm/text_exchange.h"

namespace heddle::comm {
namespace {

constexpr std::string_view kTailLabel = "sums beside the gradients";

// One line a parameter and a buffer.
std::string list_state(const nn::Module& model, const nn::ParameterBuffer& parameters) {
  std::ostringstream list;
  for (const nn::ParameterSegment& s : parameters.segments()) {
    list << "parameter '" << s.name << "' " << s.variable.dtype() << " " << s.variable.shape()
         << (s.variable.requires_grad() ? "\n" : ", frozen\n");
  }
  for (const nn::NamedVariable& b : model.named_buffers()) {
    list << "buffer '" << b.name << "' " << b.variable.dtype() << " " << b.variable.shape() << "\n";
  }
  return list.str();
}

}  // namespace

DataParallel::DataParallel(nn::Module& model, nn::ParameterBuffer& parameters, Communicator& communicator,
                           const DataParallelOptions& options)
    : parameters_(parameters), communicator_(communicator) {
  const std::vector<nn::NamedVariable> named = model.named_parameters();
  const auto& segments = parameters.segments();
  HEDDLE_CHECK(named.size() == segments.size() &&
                   std::equal(named.begin(), named.end(), segments.begin(),
                              [](const auto& a, const auto& b) { return a.variable == b.variable; }),
               "DataParallel: the parameter buffer (", segments.size(), " parameters) is not that of the model (",
               named.size(), " parameters)");
  HEDDLE_CHECK(options.reduce_dtype == DType::f32 || options.reduce_dtype == DType::bf16,
               "DataParallel: gradients are exchanged in f32 or bf16, not in ", options.reduce_dtype);
  buckets_ = plan_buckets(segments, options.buckets);
  bucket_of_.resize(segments.size());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    labels_.push_back(join_text("gradients, bucket ", b + 1, " of ", buckets_.size()));
    for (std::size_t s = buckets_[b].first; s < buckets_[b].last; ++s) bucket_of_[s] = b;
  }
  ready_.assign(segments.size(), false);
  compare_parameters(model);
  if (options.broadcast) broadcast_state(model);
  if (options.reduce_dtype == DType::bf16) {
    rounded_ = communicator.make_exchanged({parameters.gradients().numel()}, DType::bf16, parameters.device());
  } else if (!parameters.device().is_cpu()) {
    const Tensor& gradients = parameters.gradients_with_tail();
    parameters.move_gradients(communicator.make_exchanged(gradients.shape(), gradients.dtype(), gradients.device()));
  }
  if (!parameters.device().is_cpu()) stream_ = runtime_for(parameters.device()).create_stream();
}

DataParallel::~DataParallel() {
  if (!stream_.device.is_cpu()) runtime_for(stream_.device).destroy_stream(stream_);
}

void DataParallel::compare_parameters(const nn::Module& model) {
  const std::optional<TextDifference> difference =
      compare_text(communicator_, list_state(model, parameters_), parameters_.device(), "the list of parameters");
  if (!difference) return;
  throw CommError(join_text("the ranks have different models: rank 0 has ", difference->of_first, ", rank ",
                            difference->rank, " has ", difference->of_other));
}

void DataParallel::broadcast_state(nn::Module& model) {
  communicator_.broadcast(parameters_.data(), 0, "parameters");
  parameters_.mark_changed();
  for (nn::NamedVariable& buffer : model.named_buffers()) {
    communicator_.broadcast(buffer.variable.mutable_data(), 0, "buffers");
  }
}

LeafReadyHook DataParallel::hook() {
  HEDDLE_CHECK(sent_ == 0,
               "DataParallel: gradients of this step were sent already; give hook() to the last backward pass "
               "before finish() only");
  const auto& segments = parameters_.segments();
  // Anew each step: parameters may be frozen or thawed between steps.
  missing_.assign(buckets_.size(), 0);
  ready_.assign(segments.size(), false);
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (segments[s].variable.requires_grad()) ++missing_[bucket_of_[s]];
  }
  return [this](const Variable& leaf) { count_ready(leaf); };
}

void DataParallel::count_ready(const Variable& leaf) {
  const auto& segments = parameters_.segments();
  const auto* const data = static_cast<const float*>(leaf.data().raw_data());
  const auto* const begin = static_cast<const float*>(parameters_.data().raw_data());
  // Leaves that are no parameters have their gradients to themselves.
  if (leaf.data().storage() != parameters_.data().storage()) return;
  const auto next = std::upper_bound(segments.begin(), segments.end(), data - begin,
                                     [](std::int64_t at, const nn::ParameterSegment& s) { return at < s.begin; });
  const auto segment = static_cast<std::size_t>(next - segments.begin()) - 1;
  if (!(segments[segment].variable == leaf)) return;
  const std::size_t bucket = bucket_of_[segment];
  HEDDLE_CHECK(bucket >= sent_, "DataParallel: the gradient of '", segments[segment].name,
               "' changed after it was sent; give hook() to the last backward pass before finish() only");
  if (ready_[segment]) return;
  ready_[segment] = true;
  --missing_[bucket];
  // In one order on all ranks, whatever is ready first.
  while (sent_ < buckets_.size() && missing_[sent_] == 0) send_next();
}

void DataParallel::send_next() {
  const Bucket& bucket = buckets_[sent_];
  parameters_.finish_gradients(bucket.first, bucket.last);
  // The sums of the ranks are written behind the back of the tail's owner, who is told that way.
  if (bucket.last == bucket_of_.size()) parameters_.tail().tensor();
  const std::string& label = labels_[sent_++];
  if (stream_.device.is_cpu()) return exchange(bucket, label);
  DeviceRuntime& runtime = runtime_for(stream_.device);
  runtime.wait(stream_, runtime.record(current_stream(stream_.device)));
  const StreamGuard guard(stream_);
  exchange(bucket, label);
}

void DataParallel::exchange(const Bucket& bucket, const std::string& label) {
  Tensor all = parameters_.gradients_with_tail().narrow(bucket.begin, bucket.end - bucket.begin);
  if (!rounded_.defined()) return all_reduce(all, label);
  // Counts and the weight sum stay exact.
  const bool with_tail = bucket.last == bucket_of_.size();
  const std::int64_t n = all.numel() - (with_tail ? tail_slot::kCount : 0);
  Tensor gradients = all.narrow(0, n), rounded = rounded_.narrow(bucket.begin, n);
  Backend& backend = backend_for(parameters_.device());
  backend.cast(gradients, rounded);
  all_reduce(rounded, label);
  backend.cast(rounded, gradients);
  if (!with_tail) return;
  Tensor tail = all.narrow(n, tail_slot::kCount);
  all_reduce(tail, kTailLabel);
}

void DataParallel::all_reduce(Tensor& x, std::string_view what) {
  if (observer_ != nullptr) observer_->exchange_begins(x.nbytes());
  communicator_.all_reduce(x, ReduceOp::sum, what);
  if (observer_ != nullptr) observer_->exchange_ends();
}

void DataParallel::finish() {
  while (sent_ < buckets_.size()) send_next();
  sent_ = 0;
  if (stream_.device.is_cpu()) return;
  DeviceRuntime& runtime = runtime_for(stream_.device);
  runtime.wait(current_stream(stream_.device), runtime.record(stream_));
}

}  // namespace heddle::comm
