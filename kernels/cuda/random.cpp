// Random numbers and dropout: the same numbers as on the CPU. Used through CudaBackend.
#include "kernels/launch/random.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {
namespace {

PhiloxStream philox_stream(const RandomStream& random) { return {random.seed, random.offset, random.counter}; }

}  // namespace

void CudaBackend::dropout(const Tensor& x, double p, const RandomStream& random, Tensor& y, WriteMode mode) {
  visit_floats("dropout", x.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::dropout(data_of<T>(x), x.numel(), p, philox_stream(random), data_of<T>(y), mode == WriteMode::add, stream());
  });
}

void CudaBackend::random_uniform(double low, double high, const RandomStream& random, Tensor& y) {
  visit_floats("random_uniform", y.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::random_uniform(low, high, philox_stream(random), data_of<T>(y), y.numel(), stream());
  });
}

void CudaBackend::random_normal(double mean, double stddev, const RandomStream& random, Tensor& y) {
  visit_floats("random_normal", y.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::random_normal(mean, stddev, philox_stream(random), data_of<T>(y), y.numel(), stream());
  });
}

}  // namespace heddle::cuda
