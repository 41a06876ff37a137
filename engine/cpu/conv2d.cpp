// Convolution: picks an implementation for each call. The implementations are in conv2d_*.cpp.
#include <array>
#include <exception>

#include "engine/cpu/conv2d_list.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/masked_gradient.h"

namespace heddle::cpu {
namespace {

constexpr KernelSource kOwn = KernelSource::own, kVendor = KernelSource::vendor;

constexpr bool always(const ConvSizes&, DType) noexcept { return true; }

// The rules below come from tests/bench/conv_bench on a machine with AVX-512, where "simd" and oneDNN are level on
// ordinary sizes.

bool dense_wins(const ConvSizes& s, DType) { return conv_dense_wins(s); }

// oneDNN computes blocks of 16 channels and pads the rest.
bool fills_blocks(const ConvSizes& s) { return s.in_c % 16 == 0 && s.out_c % 16 == 0; }

// The own kernels for both passes hold images in vector lanes: they need enough images to fill them, and the lanes of
// one block of images (32 floats per value) should stay in the cache.
bool lanes_win(const ConvSizes& s, std::int64_t values_per_image) {
  if (kernel_choice() == KernelChoice::own) return true;  // only the plain loops are left
  constexpr std::int64_t kLanes = 16, kCachedValues = 8192;
  const std::int64_t padded = (s.batch + kLanes - 1) / kLanes * kLanes;
  if (s.batch * 4 < padded * 3) return false;
  return !fills_blocks(s) || values_per_image <= kCachedValues;
}

bool simd_wins_forward(const ConvSizes& s, DType) {
  // With few taps the transposition of the output costs more than the sums.
  if (kernel_choice() != KernelChoice::own && s.out_c % 16 == 0 && s.kernel_h * s.kernel_w * s.in_c < 16) return false;
  return lanes_win(s, s.in_h * s.in_w * s.in_c);
}

bool simd_wins_backward_data(const ConvSizes& s, DType) { return lanes_win(s, s.out_h * s.out_w * s.out_c); }

// The own kernel needs some output pixels for each pass over the gradient.
bool simd_wins_backward_weight(const ConvSizes& s, DType) {
  return kernel_choice() == KernelChoice::own || (!fills_blocks(s) && s.out_h * s.out_w >= 9);
}

constexpr std::array kForwardRows = {
    ConvForwardRow{"dense", kOwn, conv_dense_supports, dense_wins, conv_forward_dense},
    ConvForwardRow{"simd", kOwn, conv_simd_supports, simd_wins_forward, conv_forward_simd},
    ConvForwardRow{"dnnl", kVendor, conv_forward_dnnl_supports, always, conv_forward_dnnl},
    ConvForwardRow{"plain", kOwn, conv_plain_supports, always, conv_forward_plain},
};
constexpr std::array kBackwardDataRows = {
    ConvBackwardDataRow{"dense", kOwn, conv_dense_supports, dense_wins, true, conv_backward_data_dense},
    ConvBackwardDataRow{"simd", kOwn, conv_simd_supports, simd_wins_backward_data, true, conv_backward_data_simd},
    ConvBackwardDataRow{"dnnl", kVendor, conv_backward_data_dnnl_supports, always, false, conv_backward_data_dnnl},
    ConvBackwardDataRow{"plain", kOwn, conv_plain_supports, always, false, conv_backward_data_plain},
};
constexpr std::array kBackwardWeightRows = {
    ConvBackwardWeightRow{"dense", kOwn, conv_dense_supports, dense_wins, conv_backward_weight_dense},
    ConvBackwardWeightRow{"simd", kOwn, conv_simd_supports, simd_wins_backward_weight, conv_backward_weight_simd},
    ConvBackwardWeightRow{"dnnl", kVendor, conv_backward_weight_dnnl_supports, always, conv_backward_weight_dnnl},
    ConvBackwardWeightRow{"plain", kOwn, conv_plain_supports, always, conv_backward_weight_plain},
};

// The first row that can and should do the call, in the order of run_best; null if there is none.
template <class Rows>
auto first_choice(const Rows& rows, const ConvSizes& sizes, DType dtype) -> decltype(rows.data()) {
  for (int round = 0; round < 2; ++round) {
    for (const auto& row : rows) {
      if (is_tried(row.source, kernel_choice(), round) && row.supports(sizes, dtype) && row.wins(sizes, dtype)) {
        return &row;
      }
    }
  }
  return nullptr;
}

template <class Rows, class Run>
bool is_first_choice(const Rows& rows, const ConvSizes& sizes, DType dtype, Run run) {
  const auto* const row = first_choice(rows, sizes, dtype);
  return row != nullptr && row->run == run;
}

// Runs the best row of the kind that kernel_choice() prefers, or else of the other. One that finds no memory for its
// scratch (it has written nothing then) makes room for the next. False if no row takes the dtype.
template <class Rows, class Run>
bool run_best(const Rows& rows, const ConvSizes& sizes, DType dtype, Run&& run) {
  const KernelChoice choice = kernel_choice();
  std::exception_ptr out_of_memory;
  for (int round = 0; round < 2; ++round) {
    for (const auto& row : rows) {
      if (!is_tried(row.source, choice, round)) continue;
      if (!row.supports(sizes, dtype) || !row.wins(sizes, dtype)) continue;
      try {
        note_kernel({row.name, row.source});
        run(row);
        return true;
      } catch (const OutOfMemory&) {
        out_of_memory = std::current_exception();
      }
    }
  }
  if (out_of_memory) std::rethrow_exception(out_of_memory);
  return false;
}

[[noreturn]] void throw_dtype(const char* op, DType dtype) {
  throw NotSupported(join_text(op, ": no ", dtype, " on the CPU"));
}

}  // namespace

std::span<const ConvForwardRow> conv_forward_rows() { return kForwardRows; }
std::span<const ConvBackwardDataRow> conv_backward_data_rows() { return kBackwardDataRows; }
std::span<const ConvBackwardWeightRow> conv_backward_weight_rows() { return kBackwardWeightRows; }

ConvSizes conv_sizes(const Shape& x, const Shape& w, const Shape& y, const Conv2dParams& params) {
  return {.batch = x[0],
          .in_h = x[1],
          .in_w = x[2],
          .in_c = x[3],
          .out_h = y[1],
          .out_w = y[2],
          .out_c = y[3],
          .kernel_h = w[1],
          .kernel_w = w[2],
          .params = params};
}

bool conv_simd_is_chosen(const ConvSizes& sizes, DType dtype) {
  return is_first_choice(kForwardRows, sizes, dtype, conv_forward_simd) &&
         is_first_choice(kBackwardDataRows, sizes, dtype, conv_backward_data_simd) &&
         is_first_choice(kBackwardWeightRows, sizes, dtype, conv_backward_weight_simd);
}

void CpuBackend::conv2d_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                                bool relu, Tensor& y) {
  if (y.numel() == 0) return;
  const ConvForwardCall call{conv_sizes(x.shape(), w.shape(), y.shape(), params), x, w, bias, relu, y};
  if (run_best(kForwardRows, call.sizes, x.dtype(), [&](const ConvForwardRow& row) { row.run(call); })) return;
  if (x.dtype() != DType::bf16) throw_dtype("conv2d_forward", x.dtype());
  Tensor wide_y = Tensor::empty(y.shape());
  conv2d_forward(widen(x), widen(w), widen(bias), params, relu, wide_y);
  cast(wide_y, y);
}

void CpuBackend::conv2d_backward_data(const Tensor& dy, const Tensor& w, const Conv2dParams& params,
                                      const Tensor& relu_mask, Tensor& dx, WriteMode mode) {
  if (dx.numel() == 0) return;
  const ConvSizes sizes = conv_sizes(dx.shape(), w.shape(), dy.shape(), params);
  const bool done = run_best(kBackwardDataRows, sizes, dy.dtype(), [&](const ConvBackwardDataRow& row) {
    Tensor fresh = mode == WriteMode::store ? dx : Tensor::empty_like(dx);
    row.run({sizes, dy, w, relu_mask, fresh});
    if (mode == WriteMode::add) {
      add_gradient(fresh, row.applies_mask ? Tensor() : relu_mask, dx);
    } else if (relu_mask.defined() && !row.applies_mask) {
      apply_relu_mask(relu_mask, dx);
    }
  });
  if (done) return;
  if (dy.dtype() != DType::bf16) throw_dtype("conv2d_backward_data", dy.dtype());
  Tensor wide_dx = mode == WriteMode::store ? Tensor::empty(dx.shape()) : widen(dx);
  conv2d_backward_data(widen(dy), widen(w), params, widen(relu_mask), wide_dx, mode);
  cast(wide_dx, dx);
}

void CpuBackend::conv2d_backward_weight(const Tensor& x, const Tensor& dy, const Conv2dParams& params, Tensor& dw,
                                        Tensor* db, WriteMode mode) {
  const ConvSizes sizes = conv_sizes(x.shape(), dw.shape(), dy.shape(), params);
  const bool done = run_best(kBackwardWeightRows, sizes, x.dtype(), [&](const ConvBackwardWeightRow& row) {
    row.run({sizes, x, dy, dw, db, mode});
  });
  if (done) return;
  if (x.dtype() != DType::bf16) throw_dtype("conv2d_backward_weight", x.dtype());
  const bool add = mode == WriteMode::add;
  Tensor wide_dw = add ? widen(dw) : Tensor::empty(dw.shape());
  Tensor wide_db = db == nullptr ? Tensor() : add ? widen(*db) : Tensor::empty(db->shape());
  conv2d_backward_weight(widen(x), widen(dy), params, wide_dw, db == nullptr ? nullptr : &wide_db, mode);
  cast(wide_dw, dw);
  if (db != nullptr) cast(wide_db, *db);
}

}  // namespace heddle::cpu
