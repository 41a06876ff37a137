// All parameters of a model in one buffer, all gradients in another (DESIGN: flat buffers).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../backend/op_params.h"
#include "../ops/loss_stats.h"
#include "module.h"

namespace heddle::nn {

// One parameter's place in the flat buffers, in elements.
struct ParameterSegment {
  std::string name;
  Variable variable;
  std::int64_t begin = 0;
  std::int64_t numel = 0;
  // begin of the next segment: numel rounded up to 16 bytes, the rest is zero in data and gradients.
  std::int64_t end = 0;
  Tensor gradient;  // the view of the gradient buffer
  // Frozen, and its gradient was zero-filled when it had been written so many times.
  std::optional<std::uint64_t> zeroed_at = {};
};

// Moves a model's parameters (f32, in forward order) into one flat buffer; the model's variables become views of it,
// their gradients views of a second buffer that ends in an f32 tail (tail_slot) of sums that travel with the gradients.
// A model is in one buffer at a time: making another one, or moving the model to another device, ends the use of the
// first, whose functions then throw. Copies are not possible; keep it beside the model.
class ParameterBuffer {
 public:
  // Throws: InvalidArgument if the model has no parameter or not all are f32 on one device.
  explicit ParameterBuffer(Module& module);
  // The buffer of a replica: its values are those of `original`, in the same memory, and only the gradients and their
  // tail are its own. The replica's values from before are dropped. Throws: InvalidArgument unless the replica has the
  // original's parameters: names, shapes, device.
  ParameterBuffer(Module& replica, ParameterBuffer& original);
  ParameterBuffer(const ParameterBuffer&) = delete;
  ParameterBuffer& operator=(const ParameterBuffer&) = delete;

  Tensor& data() noexcept { return data_; }
  Tensor& gradients() noexcept { return gradients_; }  // same numel as data
  // Valid after finish_gradients().
  Tensor& gradients_with_tail() noexcept { return all_gradients_; }
  // Where losses leave their sums, for CrossEntropyOptions::stats; f32 (tail_slot::kCount).
  ops::LossStats& tail() noexcept { return tail_; }
  const std::vector<ParameterSegment>& segments() const noexcept { return segments_; }
  Device device() const { return data_.device(); }

  // Marks all gradients and the tail fresh: the first contribution stores. No kernel.
  // Throws: InvalidArgument if the parameters have left this buffer.
  void zero_grad();
  // Zero-fills what nothing contributed to since zero_grad(), and writes what is known to be another parameter's
  // gradient, so that the flat buffer is valid. What there is to do is known by the backward pass before: a recorded
  // step that has one of the two has the other one, too.
  // Throws: InvalidArgument if the parameters have left this buffer.
  void finish_gradients();
  // The same for segments [first, last) and, if last is the number of segments, the tail: for an exchange that begins
  // before backward is through. Throws: as finish_gradients().
  void finish_gradients(std::size_t first, std::size_t last);
  // Moves the gradients and their tail into other memory, a tensor of zeros like gradients_with_tail(). They are fresh
  // then, as after zero_grad(). Steps that were recorded before still use the old memory.
  // Throws: InvalidArgument if the tensor is not alike, or the parameters have left this buffer.
  void move_gradients(const Tensor& memory);
  // The same for all segments, but gradients that are known without having been written (zeros, or another segment's)
  // of up to kMaxGradientSources segments for which `leave` holds (by number) are left to the caller, who writes them
  // on the device before anybody reads them. Throws: as finish_gradients().
  std::vector<GradientSource> finish_gradients_but_known(const std::vector<bool>& leave);
  // To be called after data() was changed as a whole: values saved for backward notice.
  void mark_changed();

 private:
  void check_in_use() const;
  // The places of the module's parameters. Returns the elements of all.
  std::int64_t lay_out(Module& module);
  void make_gradients(std::int64_t numel, Device device);
  void place_gradients(const Tensor& memory);
  // Zero-fills the gradients of segments [first, last) that are frozen, since somebody may have written there before.
  void finish_frozen(std::size_t first, std::size_t last);
  // Where the gradient of a segment is known from, if nobody has written it.
  std::optional<GradientSource> known_gradient(const ParameterSegment& segment) const;
  // Writes a gradient that is known to be that of a leaf elsewhere.
  static void write_foreign(ParameterSegment& segment);
  void write(std::span<const GradientSource> sources);

  std::vector<ParameterSegment> segments_;
  Tensor data_, all_gradients_, gradients_;
  ops::LossStats tail_;
};

}  // namespace heddle::nn
