// Softmax and cross-entropy over the last dimension. Used through CudaBackend.
#include "kernels/launch/softmax.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/split_tickets.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {
namespace {

static_assert(tail_slot::kWeightSum == 0 && tail_slot::kLossSum == 1 && tail_slot::kCorrect == 2 &&
                  tail_slot::kSamples == 3 && tail_slot::kNonFinite == 4 && tail_slot::kCount == 8,
              "the kernel writes these places of the tail");

// Rows of `columns` elements; none for an empty tensor.
std::int64_t rows_of(const Tensor& x, std::int64_t columns) { return columns == 0 ? 0 : x.numel() / columns; }

}  // namespace

void CudaBackend::softmax_forward(const Tensor& x, bool log, Tensor& y) {
  const std::int64_t n = x.dim(-1);
  visit_floats("softmax_forward", x.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::softmax_forward(data_of<T>(x), rows_of(x, n), n, log, data_of<T>(y), stream());
  });
}

void CudaBackend::softmax_backward(const Tensor& y, const Tensor& dy, bool log, Tensor& dx, WriteMode mode) {
  const std::int64_t n = y.dim(-1);
  visit_floats("softmax_backward", y.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::softmax_backward(data_of<T>(y), data_of<T>(dy), rows_of(y, n), n, log, data_of<T>(dx), mode == WriteMode::add,
                           stream());
  });
}

void CudaBackend::cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& class_weight,
                                const CrossEntropyParams& params, CrossEntropyResult& result) {
  visit_types<DType::f32>("cross_entropy", logits.dtype(), [&](auto) {
    const bool sums = result.loss.defined() || result.stats.defined();
    const std::size_t nbytes = sums ? cross_entropy_scratch_nbytes(logits.dim(0), logits.dim(1)) : std::size_t{0};
    Tensor scratch;
    if (nbytes > 0) scratch = Tensor::empty({static_cast<std::int64_t>(nbytes)}, DType::u8, device_);
    cuda::cross_entropy({.logits = data_of<float>(logits),
                         .labels = data_of<std::int64_t>(labels),
                         .class_weight = data_of<float>(class_weight),
                         .row_loss = data_of<float>(result.row_loss),
                         .loss = data_of<float>(result.loss),
                         .dlogits = data_of<float>(result.dlogits),
                         .stats = data_of<float>(result.stats),
                         .add_to_stats = result.stats_mode == WriteMode::add,
                         .rows = logits.dim(0),
                         .classes = logits.dim(1),
                         .ignore_index = params.ignore_index,
                         .smoothing = params.label_smoothing,
                         .scratch = scratch.mutable_raw_data(),
                         .ticket = nbytes > 0 ? tickets_->for_stream(stream()) : nullptr},
                        stream());
  });
}

}  // namespace heddle::cuda
