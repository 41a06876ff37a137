#include "kernels/cuda/product.h"

#include "engine/backend/kernel_choice.h"

namespace heddle::cuda {

bool own_product_wins(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  // Up to here a product is over in a few microseconds and the time goes into waiting for memory. The own kernel then
  // saves the second kernel that masks and sums cost with the library.
  constexpr std::int64_t kSmallProduct = std::int64_t{1} << 24;
  switch (kernel_choice()) {
    case KernelChoice::own: return true;
    case KernelChoice::vendor: return false;
    case KernelChoice::automatic: return batch * rows * columns * depth <= kSmallProduct;
  }
  return true;
}

template <class T>
void product(const GemmCall<T>& call, const ProductPlace& place) {
  const bool library_can = call.relu_mask == nullptr && (call.row_sums == nullptr || !call.add);
  if (library_can && !own_product_wins(call.batch, call.rows, call.columns, call.depth) &&
      place.cublas.multiply(call, place.stream)) {
    note_kernel({"cublaslt", KernelSource::vendor});
    return;
  }
  const SplitMemory memory(plan_gemm(call.batch, call.rows, call.columns, call.depth), place.device, place.tickets,
                           place.stream);
  note_kernel({"tiles", KernelSource::own});
  gemm(call, memory.scratch(), place.stream);
}

template void product(const GemmCall<float>&, const ProductPlace&);
template void product(const GemmCall<__nv_bfloat16>&, const ProductPlace&);

}  // namespace heddle::cuda
