#include "kernels/device/broadcast.cuh"

#include "engine/core/merged_dims.h"
#include "kernels/launch/broadcast.h"
#include "kernels/launch/walk.h"

namespace heddle::cuda {
namespace {

template <int N>
BroadcastPlan<N> plan_of(const Shape& y, const std::array<const Shape*, N>& operands) {
  static_assert(BroadcastPlan<N>::kMaxRank == Shape::kMaxRank);
  const BroadcastDims<N> merged(y, operands);
  BroadcastPlan<N> plan;
  plan.numel = merged.numel;
  plan.rank = merged.rank;
  for (std::size_t d = 0; d < static_cast<std::size_t>(merged.rank); ++d) {
    plan.dims[d] = Divider(merged.dims[d]);
    for (std::size_t k = 0; k < N; ++k) plan.steps[k][d] = merged.steps[k][d];
  }
  return plan;
}

// Whether packs of n elements lie in one piece in every operand that is not repeated.
template <int N>
bool fits_packs(const BroadcastPlan<N>& plan, int n) {
  if (plan.rank == 1) return true;
  if (plan.dims[0].value() % n != 0) return false;
  for (int k = 0; k < N; ++k) {
    for (int d = 1; d < plan.rank && plan.steps[k][0] == 1; ++d) {
      if (plan.steps[k][d] % n != 0) return false;
    }
  }
  return true;
}

// A repeated operand is read one by one: its address does not matter.
template <int N, class T>
const T* in_packs(const BroadcastPlan<N>& plan, int operand, const T* pointer) {
  return plan.steps[operand][0] == 0 ? nullptr : pointer;
}

template <class T, class R>
using BinaryKernel = void (*)(BinaryFunction, const T*, const T*, BroadcastPlan<2>, std::int64_t, R*);

template <class T, class R>
void launch_binary(const char* name, BinaryKernel<T, R> kernel, BinaryFunction function, const T* a,
                   const Shape& a_shape, const T* b, const Shape& b_shape, R* y, const Shape& y_shape,
                   cudaStream_t stream) {
  if (y_shape.numel() == 0) return;
  const auto plan = plan_of<2>(y_shape, {&a_shape, &b_shape});
  constexpr int n = kPackSize<T>;
  const Walk way = walk(plan.numel, fits_packs(plan, n) ? n : 0, in_packs(plan, 0, a), in_packs(plan, 1, b),
                        static_cast<const R*>(y));
  launch(name, kernel, way.shape, stream, {reads(a, a_shape.numel()), reads(b, b_shape.numel()), writes(y, plan.numel)},
         function, a, b, plan, way.packs, y);
}

}  // namespace

template <class T>
void binary(BinaryFunction function, const T* a, const Shape& a_shape, const T* b, const Shape& b_shape, T* y,
            const Shape& y_shape, cudaStream_t stream) {
  launch_binary<T, T>("binary", binary_kernel<T>, function, a, a_shape, b, b_shape, y, y_shape, stream);
}

template <class T>
void compare(BinaryFunction function, const T* a, const Shape& a_shape, const T* b, const Shape& b_shape,
             std::uint8_t* y, const Shape& y_shape, cudaStream_t stream) {
  launch_binary<T, std::uint8_t>("compare", compare_kernel<T>, function, a, a_shape, b, b_shape, y, y_shape, stream);
}

template <class T>
void where(const std::uint8_t* condition, const T* a, const T* b, const std::array<const Shape*, 3>& shapes, T* y,
           const Shape& y_shape, cudaStream_t stream) {
  if (y_shape.numel() == 0) return;
  const auto plan = plan_of<3>(y_shape, shapes);
  constexpr int n = kPackSize<T>;
  const Walk way = walk(plan.numel, fits_packs(plan, n) ? n : 0, in_packs(plan, 0, condition), in_packs(plan, 1, a),
                        in_packs(plan, 2, b), static_cast<const T*>(y));
  launch("where", where_kernel<T>, way.shape, stream,
         {reads(condition, shapes[0]->numel()), reads(a, shapes[1]->numel()), reads(b, shapes[2]->numel()),
          writes(y, plan.numel)},
         condition, a, b, plan, way.packs, y);
}

#define HEDDLE_INSTANTIATE(T)                                                                                        \
  template void binary(BinaryFunction, const T*, const Shape&, const T*, const Shape&, T*, const Shape&,             \
                       cudaStream_t);                                                                                \
  template void compare(BinaryFunction, const T*, const Shape&, const T*, const Shape&, std::uint8_t*, const Shape&, \
                        cudaStream_t)
#define HEDDLE_INSTANTIATE_WHERE(T)                                                                                  \
  template void where(const std::uint8_t*, const T*, const T*, const std::array<const Shape*, 3>&, T*, const Shape&, \
                      cudaStream_t)

HEDDLE_INSTANTIATE(float);
HEDDLE_INSTANTIATE(__nv_bfloat16);
HEDDLE_INSTANTIATE(std::int32_t);
HEDDLE_INSTANTIATE(std::int64_t);
HEDDLE_INSTANTIATE(std::uint8_t);
HEDDLE_INSTANTIATE_WHERE(std::uint8_t);
HEDDLE_INSTANTIATE_WHERE(std::uint16_t);
HEDDLE_INSTANTIATE_WHERE(std::uint32_t);
HEDDLE_INSTANTIATE_WHERE(std::uint64_t);

}  // namespace heddle::cuda
