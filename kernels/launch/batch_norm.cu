#include "kernels/device/batch_norm.cuh"

#include <algorithm>

#include "kernels/launch/batch_norm.h"
#include "kernels/launch/matrix_kernels.h"
#include "kernels/launch/walk.h"

namespace heddle::cuda {
namespace {

constexpr std::int64_t kSumBlocks = 512;   // fill any device; more would only add parts to join
constexpr std::int64_t kSumRows = 8;       // of a thread at least, so that joining costs little
constexpr std::int64_t kRowBlocks = 4096;  // for passes without sums
constexpr std::int64_t kRowRows = 4;

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How the blocks share an array. Depends on sizes and alignment alone.
struct Plan {
  NormShape shape;
  LaunchShape launch;
  std::int64_t columns = 1, parts = 1;  // of the grid
};

Plan plan_of(const NormSize& size, int n, std::int64_t most_blocks, std::int64_t least_rows) {
  // 128 bytes side by side are whole sectors; the rest of a block goes along the rows.
  const std::int64_t packs = up(size.channels, n), most = n == 1 ? 32 : 8;
  unsigned width = 1;
  while (width < packs && width < most) width *= 2;
  const unsigned height = static_cast<unsigned>(kNormThreads) / width;
  Plan plan;
  plan.columns = up(packs, width);
  const std::int64_t wanted = std::min(size.rows / (height * least_rows), most_blocks / plan.columns);
  // Columns without a ticket of their own are so many that they need not share rows.
  const std::int64_t parts = plan.columns > kMaxTickets ? 1 : std::max<std::int64_t>(wanted, 1);
  plan.shape = {.rows = size.rows,
                .part = std::max<std::int64_t>(up(up(size.rows, parts), height) * height, 1),
                .channels = size.channels};
  plan.parts = std::max<std::int64_t>(up(size.rows, plan.shape.part), 1);
  plan.launch = {dim3(static_cast<unsigned>(plan.columns), static_cast<unsigned>(plan.parts)), dim3(width, height)};
  return plan;
}
Plan plan_of_sums(const NormSize& size, int n) { return plan_of(size, n, kSumBlocks, kSumRows); }
Plan plan_of_rows(const NormSize& size, int n) { return plan_of(size, n, kRowBlocks, kRowRows); }

// Scratch: the sums of all rows, then those of the parts.
struct Scratch {
  ChannelPair* joined;
  NormSplit split;
  Access parts, tickets;

  Scratch(const NormScratch& memory, const NormSize& size, const Plan& plan)
      : joined(static_cast<ChannelPair*>(memory.data)) {
    if (plan.parts == 1) return;
    split = {joined + size.channels, memory.tickets};
    parts = updates(split.parts, plan.parts * size.channels);
    tickets = updates(split.tickets, plan.columns);
  }
};

// Calls fn with the pack size as a compile-time constant: 16 bytes where all tensors allow it. Null is no tensor.
template <class T, class Fn, class... Ts>
void with_pack(const NormSize& size, Fn&& fn, const std::uint8_t* mask, const Ts*... tensors) {
  constexpr int N = kPackSize<T>;
  const bool mask_fits = has_mask_bits(size.channels) || is_aligned(mask, static_cast<std::size_t>(N));
  if (size.channels % N == 0 && mask_fits && (is_aligned(tensors, 16) && ...)) {
    return fn(std::integral_constant<int, N>{});
  }
  fn(std::integral_constant<int, 1>{});
}
template <class T, class Fn>
void with_pack(const NormForwardCall<T>& call, const NormSize& size, Fn&& fn) {
  with_pack<T>(size, fn, call.mask, call.x, call.addend, static_cast<const T*>(call.y));
}
template <class T, class Fn>
void with_pack(const NormBackwardCall<T>& call, const NormSize& size, Fn&& fn) {
  with_pack<T>(size, fn, call.mask, call.x, call.dy, call.y, call.x_relu_mask, static_cast<const T*>(call.dx),
               static_cast<const T*>(call.daddend));
}

std::int64_t exchange_numel(const NormSize& size) { return 2 * size.channels + 4; }

template <class T, int N>
void launch_statistics(const NormStatisticsCall<T>& call, const NormSize& size, const Plan& plan,
                       const Scratch& scratch, cudaStream_t stream) {
  launch("batch_norm_statistics", batch_norm_statistics_kernel<T, N>, plan.launch, stream,
         {reads(call.x, size.rows * size.channels), scratch.parts, scratch.tickets, writes(call.joined, size.channels),
          writes(call.exchange, exchange_numel(size))},
         call, plan.shape, scratch.split);
}

template <class T, int N, bool kWhole>
void launch_forward(const NormForwardCall<T>& call, const NormSize& size, const Plan& plan, cudaStream_t stream) {
  const std::int64_t numel = size.rows * size.channels;
  const auto running = [&](float* data) {
    return call.batch_statistics != 0 ? updates(data, size.channels) : reads(data, size.channels);
  };
  launch("batch_norm_forward", batch_norm_forward_kernel<T, N, kWhole>, plan.launch, stream,
         {reads(call.x, numel), reads(call.addend, numel), reads(call.scale, size.channels),
          reads(call.shift, size.channels), reads(call.sums.joined, size.channels),
          reads(call.sums.exchanged, call.sums.ranks * exchange_numel(size)), running(call.running_mean),
          running(call.running_var), writes(call.y, numel), writes(call.mask, mask_nbytes(size.rows, size.channels)),
          writes(call.mean, size.channels), writes(call.inv_std, size.channels)},
         call, plan.shape);
}

// What both kernels of the backward pass read, and what the sums write.
struct GradientAccesses {
  std::int64_t numel, channels;
  Access x, dy, mask, y, inv_std, mean, dscale, dshift, exchange, joined;

  template <class T>
  GradientAccesses(const NormBackwardCall<T>& call, const NormSize& size)
      : numel(size.rows * size.channels),
        channels(size.channels),
        x(reads(call.x, numel)),
        dy(reads(call.dy, numel)),
        mask(reads(call.mask, mask_nbytes(size.rows, size.channels))),
        y(reads(call.mask != nullptr ? nullptr : call.y, numel)),
        inv_std(reads(call.inv_std, channels)),
        mean(reads(call.mean, channels)),
        dscale(call.add_to_dscale != 0 ? updates(call.dscale, channels) : writes(call.dscale, channels)),
        dshift(call.add_to_dshift != 0 ? updates(call.dshift, channels) : writes(call.dshift, channels)),
        exchange(writes(call.exchange, exchange_numel(size))),
        joined(writes(call.joined, channels)) {}
};

template <class T, int N>
void launch_sums(const NormBackwardCall<T>& call, const NormSize& size, const Plan& plan, const Scratch& scratch,
                 cudaStream_t stream) {
  const GradientAccesses a(call, size);
  launch("batch_norm_sums", batch_norm_sums_kernel<T, N>, plan.launch, stream,
         {a.x, a.dy, a.mask, a.y, a.inv_std, a.mean, a.dscale, a.dshift, a.exchange, a.joined, scratch.parts,
          scratch.tickets},
         call, plan.shape, scratch.split);
}

template <class T, int N, bool kWhole>
void launch_backward(const NormBackwardCall<T>& call, const NormSize& size, const Plan& plan, cudaStream_t stream) {
  const GradientAccesses a(call, size);
  const auto put = [&](T* data, bool add) { return add ? updates(data, a.numel) : writes(data, a.numel); };
  const bool reads_x = kWhole || (call.batch_statistics != 0 && call.dx != nullptr);
  launch("batch_norm_backward", batch_norm_backward_kernel<T, N, kWhole>, plan.launch, stream,
         {reads_x ? a.x : Access{}, a.dy, a.mask, a.y, a.inv_std, a.mean, reads(call.scale, size.channels),
          kWhole ? a.dscale : Access{}, kWhole ? a.dshift : Access{}, reads(call.sums.joined, size.channels),
          reads(call.sums.exchanged, call.sums.ranks * exchange_numel(size)), reads(call.x_relu_mask, a.numel),
          put(call.dx, call.add_to_dx != 0), put(call.daddend, call.add_to_daddend != 0)},
         call, plan.shape);
}

}  // namespace

std::size_t norm_scratch_nbytes(const NormSize& size) {
  const auto pairs = [&](int n) { return (plan_of_sums(size, n).parts + 1) * size.channels; };
  return static_cast<std::size_t>(std::max({pairs(1), pairs(4), pairs(8)})) * sizeof(ChannelPair);
}

template <class T>
void norm_forward(const NormForwardCall<T>& call, const NormSize& size, const NormScratch& scratch,
                  cudaStream_t stream) {
  with_pack(call, size, [&](auto n) {
    const Plan rows = plan_of_rows(size, n);
    if (call.batch_statistics == 0 || call.sums.exchanged != nullptr) {
      return launch_forward<T, n, false>(call, size, rows, stream);
    }
    const Plan sums = plan_of_sums(size, n);
    if (sums.parts == 1) return launch_forward<T, n, true>(call, size, sums, stream);
    const Scratch memory(scratch, size, sums);
    launch_statistics<T, n>({.x = call.x, .joined = memory.joined}, size, sums, memory, stream);
    NormForwardCall<T> last = call;
    last.sums.joined = memory.joined;
    launch_forward<T, n, false>(last, size, rows, stream);
  });
}

template <class T>
void norm_statistics(const NormStatisticsCall<T>& call, const NormSize& size, const NormScratch& scratch,
                     cudaStream_t stream) {
  with_pack<T>(
      size,
      [&](auto n) {
        const Plan plan = plan_of_sums(size, n);
        launch_statistics<T, n>(call, size, plan, Scratch(scratch, size, plan), stream);
      },
      nullptr, call.x);
}

template <class T>
void norm_backward(const NormBackwardCall<T>& call, const NormSize& size, const NormScratch& scratch,
                   cudaStream_t stream) {
  const bool data = call.dx != nullptr || call.daddend != nullptr;
  const bool needs_sums =
      call.dscale != nullptr || call.dshift != nullptr || (call.batch_statistics != 0 && call.dx != nullptr);
  with_pack(call, size, [&](auto n) {
    const Plan rows = plan_of_rows(size, n);
    if (!needs_sums) {
      if (data) launch_backward<T, n, false>(call, size, rows, stream);
      return;
    }
    const Plan sums = plan_of_sums(size, n);
    if (sums.parts == 1 && data) return launch_backward<T, n, true>(call, size, sums, stream);
    const Scratch memory(scratch, size, sums);
    NormBackwardCall<T> first = call;
    if (data) first.joined = memory.joined;
    launch_sums<T, n>(first, size, sums, memory, stream);
    if (!data) return;
    NormBackwardCall<T> last = call;
    last.sums.joined = memory.joined;
    launch_backward<T, n, false>(last, size, rows, stream);
  });
}

template <class T>
void norm_backward_sums(const NormBackwardCall<T>& call, const NormSize& size, const NormScratch& scratch,
                        cudaStream_t stream) {
  with_pack(call, size, [&](auto n) {
    const Plan plan = plan_of_sums(size, n);
    launch_sums<T, n>(call, size, plan, Scratch(scratch, size, plan), stream);
  });
}

template <class T>
void norm_backward_data(const NormBackwardCall<T>& call, const NormSize& size, cudaStream_t stream) {
  with_pack(call, size, [&](auto n) { launch_backward<T, n, false>(call, size, plan_of_rows(size, n), stream); });
}

#define HEDDLE_INSTANTIATE(T)                                                                                      \
  template void norm_forward(const NormForwardCall<T>&, const NormSize&, const NormScratch&, cudaStream_t);        \
  template void norm_statistics(const NormStatisticsCall<T>&, const NormSize&, const NormScratch&, cudaStream_t);  \
  template void norm_backward(const NormBackwardCall<T>&, const NormSize&, const NormScratch&, cudaStream_t);      \
  template void norm_backward_sums(const NormBackwardCall<T>&, const NormSize&, const NormScratch&, cudaStream_t); \
  template void norm_backward_data(const NormBackwardCall<T>&, const NormSize&, cudaStream_t)

HEDDLE_INSTANTIATE(float);
HEDDLE_INSTANTIATE(__nv_bfloat16);

}  // namespace heddle::cuda
