// Primitives that move elements: permute, ranges, rows and elements by index. Used through CudaBackend.
#include "kernels/launch/indexing.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {
namespace {

// Bytes of an element that is only moved. Throws: NotSupported for a dtype that CUDA devices do not hold.
std::size_t moved_nbytes(const char* op, DType dtype) {
  std::size_t nbytes = 0;
  visit_size(op, dtype, [&]<class U>(TypeTag<U>) { nbytes = sizeof(U); });
  return nbytes;
}

}  // namespace

void CudaBackend::permute(const Tensor& x, std::span<const int> perm, Tensor& y) {
  cuda::permute(x.raw_data(), x.shape(), perm, moved_nbytes("permute", x.dtype()), y.mutable_raw_data(), stream());
}

void CudaBackend::copy_range(const Tensor& x, std::int64_t x_begin, Tensor& y, std::int64_t y_begin, int dim,
                             std::int64_t n, WriteMode mode) {
  const RangeCopy range{
      .x = AroundDim(x.shape(), dim), .y = AroundDim(y.shape(), dim), .x_begin = x_begin, .y_begin = y_begin, .n = n};
  if (mode == WriteMode::store) {
    return cuda::copy_range(x.raw_data(), range, moved_nbytes("copy_range", x.dtype()), y.mutable_raw_data(), stream());
  }
  visit_all("copy_range", x.dtype(),
            [&]<class T>(TypeTag<T>) { cuda::add_range(data_of<T>(x), range, data_of<T>(y), stream()); });
}

void CudaBackend::index_select(const Tensor& x, const Tensor& index, Tensor& y) {
  const std::int64_t n = index.numel();
  const std::size_t row =
      moved_nbytes("index_select", x.dtype()) * static_cast<std::size_t>(n == 0 ? 0 : y.numel() / n);
  cuda::index_select(x.raw_data(), x.dim(0), data_of<std::int64_t>(index), n, row, y.mutable_raw_data(), stream());
}

void CudaBackend::index_add(const Tensor& x, const Tensor& index, Tensor& y) {
  const std::int64_t n = index.numel(), row = n == 0 ? 0 : x.numel() / n;
  visit_all("index_add", x.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::index_add(data_of<T>(x), data_of<std::int64_t>(index), n, row, data_of<T>(y), y.dim(0), stream());
  });
}

void CudaBackend::gather(const Tensor& x, int dim, const Tensor& index, Tensor& y) {
  cuda::gather(x.raw_data(), AroundDim(x.shape(), dim), data_of<std::int64_t>(index), AroundDim(y.shape(), dim),
               moved_nbytes("gather", x.dtype()), y.mutable_raw_data(), stream());
}

void CudaBackend::scatter_add(const Tensor& x, int dim, const Tensor& index, Tensor& y) {
  visit_all("scatter_add", x.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::scatter_add(data_of<T>(x), AroundDim(x.shape(), dim), data_of<std::int64_t>(index), AroundDim(y.shape(), dim),
                      data_of<T>(y), stream());
  });
}

}  // namespace heddle::cuda
