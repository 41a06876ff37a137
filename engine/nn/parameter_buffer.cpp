#include "engine/nn/parameter_buffer.h"

#include <algorithm>

#include "engine/backend/backend.h"

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
    segment.zeroed_at.reset();
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
  // First those that are known by others: nobody asks for them any more.
  for (const bool known : {true, false}) {
    for (ParameterSegment& segment : segments_) {
      if (segment.variable.grad_same_as().defined() == known) segment.variable.zero_grad();
    }
  }
  tail_.zero();
}

void ParameterBuffer::finish_gradients() { finish_gradients(0, segments_.size()); }

void ParameterBuffer::finish_frozen(std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    ParameterSegment& segment = segments_[i];
    if (segment.variable.requires_grad()) {
      segment.zeroed_at.reset();
    } else if (const std::uint64_t writes = segment.variable.gradient_writes(); segment.zeroed_at != writes) {
      segment.gradient.fill_zero();
      segment.zeroed_at = writes;
    }
  }
}

std::optional<GradientSource> ParameterBuffer::known_gradient(const ParameterSegment& segment) const {
  if (!segment.variable.requires_grad()) return {};
  GradientSource known{.begin = segment.begin, .numel = segment.end - segment.begin};
  if (segment.variable.grad_is_fresh()) return known;
  const Variable source = segment.variable.grad_same_as();
  if (!source.defined()) return {};
  for (const ParameterSegment& other : segments_) {
    if (!(other.variable == source)) continue;
    known.from = other.begin;
    return known;
  }
  return {};
}

void ParameterBuffer::write_foreign(ParameterSegment& segment) {
  if (segment.variable.requires_grad() && segment.variable.grad_same_as().defined()) segment.variable.grad();
}

void ParameterBuffer::write(std::span<const GradientSource> sources) {
  while (!sources.empty()) {
    const std::span<const GradientSource> now = sources.first(std::min(sources.size(), kMaxGradientSources));
    sources = sources.subspan(now.size());
    // From the first place of these on, so that a GPU is told of no memory that travels meanwhile and is not meant.
    std::int64_t begin = now.front().begin, end = 0;
    for (const GradientSource& source : now) {
      const bool copied = source.from != GradientSource::kZeros;
      begin = std::min(begin, copied ? source.from : source.begin);
      end = std::max({end, source.begin + source.numel, copied ? source.from + source.numel : 0});
    }
    std::vector<GradientSource> moved(now.begin(), now.end());
    for (GradientSource& source : moved) {
      source.begin -= begin;
      if (source.from != GradientSource::kZeros) source.from -= begin;
    }
    Tensor part = gradients_.narrow(begin, end - begin);
    backend_for(device()).write_gradients(part, moved);
  }
}

void ParameterBuffer::finish_gradients(std::size_t first, std::size_t last) {
  check_in_use();
  finish_frozen(first, last);
  std::vector<GradientSource> known;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    ParameterSegment& segment = segments_[i];
    const std::optional<GradientSource> source = known_gradient(segment);
    const auto place = [&](std::size_t k) { return k < segments_.size() ? segments_[k].begin : gradients_.numel(); };
    // Also those that take theirs from here, before it changes.
    const bool from_here = source && source->from >= place(first) && source->from < place(last);
    const bool inside = i >= first && i < last;
    if (!source && inside) write_foreign(segment);
    if (!source || !(inside || from_here)) continue;
    known.push_back(*source);
    segment.variable.keep_grad();
  }
  write(known);
  // The caller may change them, as an exchange does: no leaf takes its gradient from here any more.
  for (std::size_t i = first; i < last; ++i) {
    if (segments_[i].variable.requires_grad()) segments_[i].variable.keep_grad();
  }
  if (last == segments_.size()) tail_.read();
}

std::vector<GradientSource> ParameterBuffer::finish_gradients_but_known(const std::vector<bool>& leave) {
  check_in_use();
  finish_frozen(0, segments_.size());
  std::vector<GradientSource> left, known;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    ParameterSegment& segment = segments_[i];
    if (const std::optional<GradientSource> source = known_gradient(segment)) {
      (leave[i] && left.size() < kMaxGradientSources ? left : known).push_back(*source);
      segment.variable.keep_grad();
    } else {
      write_foreign(segment);
    }
  }
  write(known);
  tail_.read();
  return left;
}

void ParameterBuffer::mark_changed() { data_.mutable_raw_data(); }

}  // namespace heddle::nn
