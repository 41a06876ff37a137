#include "kernels/launch/tile_gemm.h"

namespace heddle::cuda {
namespace {

template <bool kAlongK, class T>
device::PlainOperand<T, kAlongK> operand(const T* data, std::int64_t rows, std::int64_t depth) {
  const std::int64_t ld = kAlongK ? depth : rows, stride = rows * depth;
  return {data,
          ld,
          stride,
          static_cast<int>(rows),
          static_cast<int>(depth),
          ld % 4 == 0 && stride % 4 == 0 && fours_aligned(data) ? 1 : 0};
}

template <bool kAAlongK, bool kBAlongK, class T>
void run(const GemmCall<T>& call, const device::GemmOutput<T>& out, const SplitScratch& scratch, cudaStream_t stream) {
  const std::int64_t y_count = call.batch * call.rows * call.columns;
  tile_gemm("gemm", operand<kAAlongK>(call.a, call.rows, call.depth),
            operand<kBAlongK>(call.b, call.columns, call.depth), out, {call.batch, call.rows, call.columns, call.depth},
            scratch,
            {reads(call.a, call.batch * call.rows * call.depth), reads(call.b, call.batch * call.columns * call.depth),
             call.add ? updates(call.y, y_count) : writes(call.y, y_count)},
            stream);
}

}  // namespace

SplitPlan plan_gemm(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  return plan_tiles({batch, rows, columns, depth});
}

template <class T>
void gemm(const GemmCall<T>& call, const SplitScratch& scratch, cudaStream_t stream) {
  if (call.batch > kMaxGridZ) {
    GemmCall<T> part = call, rest = call;
    part.batch = kMaxGridZ;
    rest.batch -= kMaxGridZ;
    rest.a += kMaxGridZ * call.rows * call.depth;
    rest.b += kMaxGridZ * call.columns * call.depth;
    rest.y += kMaxGridZ * call.rows * call.columns;
    gemm(part, scratch, stream);
    return gemm(rest, scratch, stream);
  }
  device::GemmOutput<T> out{.y = call.y,
                            .bias = call.bias,
                            .relu_mask = call.relu_mask,
                            .row_sums = call.row_sums,
                            .ld = call.columns,
                            .stride_z = call.rows * call.columns,
                            .bias_stride_z = 0,
                            .relu = call.relu ? 1 : 0,
                            .add = call.add ? 1 : 0,
                            .wide = 0};
  out.wide = is_wide(out) ? 1 : 0;
  if (call.transpose_a) {
    if (call.transpose_b) return run<false, true>(call, out, scratch, stream);
    return run<false, false>(call, out, scratch, stream);
  }
  if (call.transpose_b) return run<true, true>(call, out, scratch, stream);
  return run<true, false>(call, out, scratch, stream);
}

template void gemm(const GemmCall<float>&, const SplitScratch&, cudaStream_t);
template void gemm(const GemmCall<__nv_bfloat16>&, const SplitScratch&, cudaStream_t);

}  // namespace heddle::cuda
