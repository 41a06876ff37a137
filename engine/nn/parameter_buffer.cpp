#include "engine/nn/parameter_buffer.h"

namespace heddle::nn {
namespace {

constexpr std::int64_t kAlignNbytes = 16;
constexpr std::int64_t kAlignElements = kAlignNbytes / static_cast<std::int64_t>(size_of(DType::f32));

}  // namespace

ParameterBuffer::ParameterBuffer(Module& module) {
  const std::int64_t numel = lay_out(module);
  const Device device = segments_.front().variable.device();
  data_ = Tensor::zeros({numel}, DType::f32, device);
  make_gradients(numel, device);
  for (ParameterSegment& segment : segments_) {
    segment.variable.rebind(data_.slice_of_flat(segment.begin, segment.variable.shape()), segment.gradient);
  }
}

ParameterBuffer::ParameterBuffer(Module& replica, ParameterBuffer& original) : data_(original.data_) {
  lay_out(replica);
  const auto& wanted = original.segments_;
  HEDDLE_CHECK(segments_.size() == wanted.size(), "ParameterBuffer: the replica has ", segments_.size(),
               " parameters, the original ", wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Variable& own = segments_[i].variable;
    HEDDLE_CHECK(segments_[i].name == wanted[i].name && own.shape() == wanted[i].variable.shape() &&
                     own.device() == original.device(),
                 "ParameterBuffer: the replica has the parameter '", segments_[i].name, "' ", own.shape(), " on ",
                 own.device(), ", the original '", wanted[i].name, "' ", wanted[i].variable.shape(), " on ",
                 original.device());
    HEDDLE_CHECK(!(own == wanted[i].variable), "ParameterBuffer: the replica is the original model");
  }
  make_gradients(data_.numel(), data_.device());
  for (ParameterSegment& segment : segments_) {
    segment.variable.share(data_.slice_of_flat(segment.begin, segment.variable.shape()), segment.gradient);
  }
}

std::int64_t ParameterBuffer::lay_out(Module& module) {
  const std::vector<NamedVariable> parameters = module.named_parameters();
  HEDDLE_CHECK(!parameters.empty(), "ParameterBuffer: ", module.description(), " has no parameters");
  const Device device = parameters.front().variable.device();
  std::int64_t at = 0;
  for (const NamedVariable& p : parameters) {
    HEDDLE_CHECK(p.variable.dtype() == DType::f32 && p.variable.device() == device, "ParameterBuffer: parameter '",
                 p.name, "' is ", p.variable.dtype(), " on ", p.variable.device(), ", expected f32 on ", device);
    const std::int64_t numel = p.variable.numel();
    const std::int64_t end = at + (numel + kAlignElements - 1) / kAlignElements * kAlignElements;
    segments_.push_back({p.name, p.variable, at, numel, end});
    at = end;
  }
  return at;
}

void ParameterBuffer::make_gradients(std::int64_t numel, Device device) {
  place_gradients(Tensor::zeros({numel + tail_slot::kCount}, DType::f32, device));
  tail_ = all_gradients_.narrow(numel, tail_slot::kCount);
}

void ParameterBuffer::place_gradients(const Tensor& memory) {
  const std::int64_t numel = memory.numel() - tail_slot::kCount;
  all_gradients_ = memory;
  gradients_ = all_gradients_.narrow(0, numel);
  for (ParameterSegment& segment : segments_) {
    segment.gradient = gradients_.slice_of_flat(segment.begin, segment.variable.shape());
  }
}

void ParameterBuffer::move_gradients(const Tensor& memory) {
  check_in_use();
  HEDDLE_CHECK(memory.defined() && memory.dtype() == DType::f32 && memory.device() == device() &&
                   memory.shape() == all_gradients_.shape(),
               "ParameterBuffer: gradients ", all_gradients_.shape(), " f32 on ", device(), " cannot move to ",
               memory.shape(), " ", memory.dtype(), " on ", memory.device());
  place_gradients(memory);
  tail_.move(all_gradients_.narrow(gradients_.numel(), tail_slot::kCount));
  for (ParameterSegment& segment : segments_) {
    segment.variable.share(segment.variable.data(), segment.gradient);
    segment.zeroed = false;
  }
}

void ParameterBuffer::check_in_use() const {
  for (const ParameterSegment& segment : segments_) {
    const Tensor& values = segment.variable.data();
    HEDDLE_CHECK(values.storage() == data_.storage() && segment.variable.shape() == segment.gradient.shape() &&
                     values.offset_nbytes() == static_cast<std::size_t>(segment.begin) * size_of(DType::f32),
                 "ParameterBuffer: parameter '", segment.name, "' ", segment.gradient.shape(),
                 " has left this buffer: a later ParameterBuffer or Module::to() moved the model's parameters; use the "
                 "later buffer, and an optimiser made from it");
  }
}

void ParameterBuffer::zero_grad() {
  check_in_use();
  for (ParameterSegment& segment : segments_) segment.variable.zero_grad();
  tail_.zero();
}

void ParameterBuffer::finish_gradients() { finish_gradients(0, segments_.size()); }

void ParameterBuffer::finish_gradients(std::size_t first, std::size_t last) {
  check_in_use();
  for (std::size_t i = first; i < last; ++i) {
    ParameterSegment& segment = segments_[i];
    if (!segment.variable.requires_grad()) {
      // Nothing writes the gradient of a frozen parameter, but it may hold one from before it was frozen.
      if (!segment.zeroed) segment.gradient.fill_zero();
      segment.zeroed = true;
    } else {
      segment.zeroed = false;
      if (segment.variable.grad_is_fresh()) segment.variable.grad();
    }
  }
  if (last == segments_.size()) tail_.read();
}

void ParameterBuffer::mark_changed() { data_.mutable_raw_data(); }

}  // namespace heddle::nn
