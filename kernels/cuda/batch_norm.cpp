// Batch norm: own kernels, which take every call, and the choice between them and the library's. Used through
// CudaBackend. The mask of a forward pass is has_mask_bits', whoever wrote it.
#include "engine/backend/batch_norm.h"

#include <array>
#include <span>
#include <vector>

#include "kernels/cuda/batch_norm_list.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/run_best.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {
namespace {

constexpr KernelSource kOwn = KernelSource::own, kVendor = KernelSource::vendor;

// Scratch of one call; keeps its memory as long as work is queued.
struct Scratch {
  Tensor memory;
  NormScratch pointers;

  Scratch(const NormSize& size, const NormPlace& place)
      : memory(Tensor::empty({static_cast<std::int64_t>(norm_scratch_nbytes(size))}, DType::u8, place.device)),
        pointers{memory.mutable_raw_data(), place.tickets.for_stream(place.stream)} {}
};

NormSums sums_of(const Tensor& exchanged) {
  if (!exchanged.defined()) return {};
  return {.exchanged = data_of<double>(exchanged), .ranks = exchanged.dim(0)};
}

template <class T>
NormForwardCall<T> call_of(BatchNormForward& op) {
  return {.x = data_of<T>(static_cast<const Tensor&>(op.x)),
          .addend = data_of<T>(static_cast<const Tensor&>(op.addend)),
          .scale = data_of<float>(static_cast<const Tensor&>(op.scale)),
          .shift = data_of<float>(static_cast<const Tensor&>(op.shift)),
          .sums = op.batch_statistics ? sums_of(op.exchanged) : NormSums{},
          .running_mean = data_of<float>(op.running_mean),
          .running_var = data_of<float>(op.running_var),
          .eps = op.eps,
          .momentum = op.momentum,
          .batch_statistics = op.batch_statistics ? 1 : 0,
          .relu = op.relu ? 1 : 0,
          .y = data_of<T>(op.y),
          .mask = data_of<std::uint8_t>(op.mask),
          .mean = data_of<float>(op.mean),
          .inv_std = data_of<float>(op.inv_std)};
}

template <class T>
NormBackwardCall<T> call_of(BatchNormBackward& op) {
  const bool masked = op.relu && op.mask.defined();
  return {.x = data_of<T>(static_cast<const Tensor&>(op.x)),
          .dy = data_of<T>(static_cast<const Tensor&>(op.dy)),
          .mask = masked ? data_of<std::uint8_t>(static_cast<const Tensor&>(op.mask)) : nullptr,
          .y = op.relu && !masked ? data_of<T>(static_cast<const Tensor&>(op.y)) : nullptr,
          .scale = data_of<float>(static_cast<const Tensor&>(op.scale)),
          .mean = data_of<float>(static_cast<const Tensor&>(op.mean)),
          .inv_std = data_of<float>(static_cast<const Tensor&>(op.inv_std)),
          .batch_statistics = op.batch_statistics ? 1 : 0,
          .x_relu_mask = data_of<T>(static_cast<const Tensor&>(op.x_relu_mask)),
          .dx = data_of<T>(op.dx),
          .daddend = data_of<T>(op.daddend),
          .dscale = data_of<float>(op.dscale),
          .dshift = data_of<float>(op.dshift),
          .add_to_dx = op.dx_mode == WriteMode::add ? 1 : 0,
          .add_to_daddend = op.daddend_mode == WriteMode::add ? 1 : 0,
          .add_to_dscale = op.dscale_mode == WriteMode::add ? 1 : 0,
          .add_to_dshift = op.dshift_mode == WriteMode::add ? 1 : 0};
}

template <class Operands>
bool takes_all(const Operands&) {
  return true;
}

bool forward_own(BatchNormForward& op, const NormPlace& place) {
  const NormSize size = norm_size(op.x);
  const Scratch scratch(size, place);
  visit_floats("batch_norm", op.x.dtype(),
               [&]<class T>(TypeTag<T>) { norm_forward(call_of<T>(op), size, scratch.pointers, place.stream); });
  return true;
}

bool backward_own(BatchNormBackward& op, const NormPlace& place) {
  const NormSize size = norm_size(op.x);
  const Scratch scratch(size, place);
  visit_floats("batch_norm", op.x.dtype(),
               [&]<class T>(TypeTag<T>) { norm_backward(call_of<T>(op), size, scratch.pointers, place.stream); });
  return true;
}

// With running statistics the own kernel is one as the library's is, and knows the variance from the start.
constexpr std::array kForwardRows = {
    NormRow<BatchNormForward>{"cudnn", kVendor, norm_training_cudnn_supports, norm_training_cudnn},
    NormRow<BatchNormForward>{"own", kOwn, takes_all, forward_own},
    NormRow<BatchNormForward>{"cudnn_inference", kVendor, norm_inference_cudnn_supports, norm_inference_cudnn},
};
constexpr std::array kBackwardRows = {
    NormRow<BatchNormBackward>{"cudnn", kVendor, norm_backward_cudnn_supports, norm_backward_cudnn},
    NormRow<BatchNormBackward>{"own", kOwn, takes_all, backward_own},
};

template <class Rows, class Operands>
void run_row(const Rows& rows, Operands& operands, const NormPlace& place) {
  run_best(
      rows, [&](const auto& row) { return row.supports(operands); },
      [&](const auto& row) { return row.run(operands, place); });
}

}  // namespace

NormSize norm_size(const Tensor& x) {
  const std::int64_t channels = x.dim(-1);
  return {.rows = channels == 0 ? 0 : x.numel() / channels, .channels = channels};
}

Tensor CudaBackend::batch_norm_mask(const BatchNormForward& operands) {
  const std::span<const std::int64_t> of_x = operands.x.shape().dims();
  std::vector<std::int64_t> dims(of_x.begin(), of_x.end());
  if (has_mask_bits(dims.back())) dims.back() /= 8;
  return Tensor::empty(Shape(dims), DType::u8, device_);
}

void CudaBackend::batch_norm_forward(BatchNormForward& operands) {
  if (operands.scale.numel() == 0) return;
  run_row(kForwardRows, operands, {*graphs_, *tickets_, device_, stream()});
}

void CudaBackend::batch_norm_backward(BatchNormBackward& operands) {
  if (operands.scale.numel() == 0) return;
  run_row(kBackwardRows, operands, {*graphs_, *tickets_, device_, stream()});
}

void CudaBackend::batch_norm_statistics(const Tensor& x, Tensor& exchange) {
  const NormSize size = norm_size(x);
  if (size.channels == 0) return exchange.fill_zero();
  const Scratch scratch(size, {*graphs_, *tickets_, device_, stream()});
  visit_floats("batch_norm", x.dtype(), [&]<class T>(TypeTag<T>) {
    norm_statistics<T>({.x = data_of<T>(x), .exchange = data_of<double>(exchange)}, size, scratch.pointers, stream());
  });
}

void CudaBackend::batch_norm_backward_sums(BatchNormBackward& operands, Tensor& exchange) {
  const NormSize size = norm_size(operands.x);
  if (size.channels == 0) return exchange.fill_zero();
  const Scratch scratch(size, {*graphs_, *tickets_, device_, stream()});
  visit_floats("batch_norm", operands.x.dtype(), [&]<class T>(TypeTag<T>) {
    NormBackwardCall<T> call = call_of<T>(operands);
    call.exchange = data_of<double>(exchange);
    norm_backward_sums(call, size, scratch.pointers, stream());
  });
}

void CudaBackend::batch_norm_backward_data(BatchNormBackward& operands, const Tensor& exchanged) {
  const NormSize size = norm_size(operands.x);
  if (size.rows == 0 || (!operands.dx.defined() && !operands.daddend.defined())) return;
  visit_floats("batch_norm", operands.x.dtype(), [&]<class T>(TypeTag<T>) {
    NormBackwardCall<T> call = call_of<T>(operands);
    call.sums = sums_of(exchanged);
    norm_backward_data(call, size, stream());
  });
}

}  // namespace heddle::cuda
