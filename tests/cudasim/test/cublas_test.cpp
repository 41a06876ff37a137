// The simulated cuBLAS against products written out as loops, and its refusals.
#include <cublas_v2.h>

#include <cstring>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/number_array.h"
#include "tests/support/catch.h"

namespace {

using cudasim::ElementType;

struct Handle {
  Handle() {
    cudasim::reset();
    REQUIRE(cublasCreate(&blas) == CUBLAS_STATUS_SUCCESS);
    require_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    REQUIRE(cublasSetStream(blas, stream) == CUBLAS_STATUS_SUCCESS);
  }
  ~Handle() {
    cublasDestroy(blas);
    cudaStreamDestroy(stream);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cublasHandle_t blas = nullptr;
  cudaStream_t stream = nullptr;
};

// A product of column-major matrices in loops: c = alpha * op(a) * op(b) + beta * c.
struct Product {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  double alpha = 1, beta = 0;
};
std::vector<double> reference(const Product& p, const std::vector<double>& a, const std::vector<double>& b,
                              std::vector<double> c) {
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (std::int64_t q = 0; q < p.k; ++q) {
        sum += a[static_cast<std::size_t>(p.transpose_a ? q + i * p.lda : i + q * p.lda)] *
               b[static_cast<std::size_t>(p.transpose_b ? j + q * p.ldb : q + j * p.ldb)];
      }
      double& out = c[static_cast<std::size_t>(i + j * p.ldc)];
      out = p.alpha * sum + (p.beta == 0 ? 0 : p.beta * out);
    }
  }
  return c;
}

cublasOperation_t operation(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

}  // namespace

TEST_CASE("sgemm multiplies every combination of transpositions, with padding between columns") {
  const Handle handle;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      Product p{.transpose_a = transpose_a, .transpose_b = transpose_b, .m = 5, .n = 7, .k = 3};
      p.lda = (transpose_a ? p.k : p.m) + 2;
      p.ldb = (transpose_b ? p.n : p.k) + 1;
      p.ldc = p.m + 3;
      p.alpha = 1.5;
      p.beta = -0.5;
      const auto a = varied(p.lda * (transpose_a ? p.m : p.k), 1), b = varied(p.ldb * (transpose_b ? p.k : p.n), 2);
      const auto c = varied(p.ldc * p.n, 3);
      const NumberArray device_a(a), device_b(b), device_c(c);
      const float alpha = 1.5f, beta = -0.5f;
      REQUIRE(cublasSgemm(handle.blas, operation(transpose_a), operation(transpose_b), 5, 7, 3, &alpha,
                          device_a.data<float>(), static_cast<int>(p.lda), device_b.data<float>(),
                          static_cast<int>(p.ldb), &beta, device_c.data<float>(),
                          static_cast<int>(p.ldc)) == CUBLAS_STATUS_SUCCESS);
      // Padding keeps what it had.
      CHECK(largest_error(device_c.download(), reference(p, a, b, c)) < 1e-6);
    }
  }
}

TEST_CASE("with beta 0 the NaNs of fresh memory do not reach the result, and it is one library call") {
  const Handle handle;
  const Product p{.m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4};
  const auto a = varied(16, 1), b = varied(16, 2);
  const NumberArray device_a(a), device_b(b), device_c(16);
  const float one = 1, zero = 0;
  require_ok(cudaDeviceSynchronize());
  cudasim::reset_counters();
  REQUIRE(cublasSgemm(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, device_a.data<float>(), 4,
                      device_b.data<float>(), 4, &zero, device_c.data<float>(), 4) == CUBLAS_STATUS_SUCCESS);
  const cudasim::Counters counters = cudasim::counters();
  CHECK(counters.library_calls == 1);
  CHECK(counters.bytes_read == 2 * 64);
  CHECK(counters.bytes_written == 64);
  CHECK(largest_error(device_c.download(), reference(p, a, b, std::vector<double>(16))) < 1e-6);
}

TEST_CASE("a product runs late: what is written to its input before the wait is what it reads") {
  const Handle handle;
  cudasim::set_stream_order({.kind = cudasim::StreamOrder::lazy});
  const NumberArray a(varied(4, 1)), b(std::vector<double>{1, 0, 0, 1}), c(4);
  const auto later = varied(4, 9);
  const float one = 1, zero = 0;
  REQUIRE(cublasSgemm(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a.data<float>(), 2, b.data<float>(), 2,
                      &zero, c.data<float>(), 2) == CUBLAS_STATUS_SUCCESS);
  const std::vector<float> host(later.begin(), later.end());
  // Another stream, no event: on a GPU this is a race, and the simulation shows it.
  cudaStream_t other = nullptr;
  require_ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  require_ok(cudaMemcpyAsync(a.data(), host.data(), 16, cudaMemcpyHostToDevice, other));
  require_ok(cudaStreamSynchronize(other));
  require_ok(cudaStreamDestroy(other));
  CHECK(c.download() == later);
}

TEST_CASE("factors on the device are read when the product runs") {
  const Handle handle;
  REQUIRE(cublasSetPointerMode(handle.blas, CUBLAS_POINTER_MODE_DEVICE) == CUBLAS_STATUS_SUCCESS);
  const NumberArray a(std::vector<double>{2}), b(std::vector<double>{3}), c(std::vector<double>{10});
  const NumberArray alpha(std::vector<double>{4}), beta(std::vector<double>{0.5});
  REQUIRE(cublasSgemm(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, alpha.data<float>(), a.data<float>(), 1,
                      b.data<float>(), 1, beta.data<float>(), c.data<float>(), 1) == CUBLAS_STATUS_SUCCESS);
  CHECK(c.download()[0] == 29);
}

TEST_CASE("bfloat16 products round the result once, or keep it in float") {
  const Handle handle;
  const Product p{.m = 3, .n = 2, .k = 40, .lda = 3, .ldb = 40, .ldc = 3};
  const auto a = varied(120, 1), b = varied(80, 2);
  const NumberArray device_a(a, ElementType::bfloat16), device_b(b, ElementType::bfloat16);
  const auto exact = reference(p, a, b, std::vector<double>(6));
  const float one = 1, zero = 0;
  SECTION("bfloat16 out") {
    const NumberArray c(6, ElementType::bfloat16);
    REQUIRE(cublasGemmEx(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 3, 2, 40, &one, device_a.data(), CUDA_R_16BF, 3,
                         device_b.data(), CUDA_R_16BF, 40, &zero, c.data(), CUDA_R_16BF, 3, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
    const auto got = c.download();
    for (std::size_t i = 0; i < 6; ++i) CHECK(got[i] == cudasim::round_to(ElementType::bfloat16, exact[i]));
  }
  SECTION("float out") {
    const NumberArray c(6);
    REQUIRE(cublasGemmEx(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 3, 2, 40, &one, device_a.data(), CUDA_R_16BF, 3,
                         device_b.data(), CUDA_R_16BF, 40, &zero, c.data(), CUDA_R_32F, 3, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
    CHECK(largest_error(c.download(), exact) < 1e-6);
  }
}

TEST_CASE("TF32 is off until the math mode asks for it") {
  const Handle handle;
  const double value = 1 + 1.0 / 4096;  // not a TF32 number
  const NumberArray a(std::vector<double>{value}), b(std::vector<double>{1}), c(1);
  const float one = 1, zero = 0;
  const auto multiply = [&] {
    REQUIRE(cublasSgemm(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.data<float>(), 1, b.data<float>(), 1,
                        &zero, c.data<float>(), 1) == CUBLAS_STATUS_SUCCESS);
    return c.download()[0];
  };
  CHECK(multiply() == value);
  REQUIRE(cublasSetMathMode(handle.blas, CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply() == 1);
}

TEST_CASE("a batch of products, one factor shared by all") {
  const Handle handle;
  const Product p{.m = 2, .n = 3, .k = 4, .lda = 2, .ldb = 4, .ldc = 2};
  const auto a = varied(8, 1), b = varied(24, 2);
  const NumberArray device_a(a), device_b(b), c(12);
  const float one = 1, zero = 0;
  REQUIRE(cublasGemmStridedBatchedEx(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &one, device_a.data(), CUDA_R_32F,
                                     2, 0, device_b.data(), CUDA_R_32F, 4, 12, &zero, c.data(), CUDA_R_32F, 2, 6, 2,
                                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  auto expected = reference(p, a, {b.begin(), b.begin() + 12}, std::vector<double>(6));
  const auto second = reference(p, a, {b.begin() + 12, b.end()}, std::vector<double>(6));
  expected.insert(expected.end(), second.begin(), second.end());
  CHECK(largest_error(c.download(), expected) < 1e-6);
}

TEST_CASE("cuBLAS refuses what it documents as wrong") {
  const Handle handle;
  const NumberArray a(16), b(16), c(16);
  const float one = 1, zero = 0;
  struct Arguments {
    cublasOperation_t transa = CUBLAS_OP_N;
    int m = 4, n = 4, k = 4, lda = 4, ldb = 4, ldc = 4;
    const float* alpha = nullptr;
  };
  const auto call = [&](const Arguments& x) {
    return cublasSgemm(handle.blas, x.transa, CUBLAS_OP_N, x.m, x.n, x.k, x.alpha, a.data<float>(), x.lda,
                       b.data<float>(), x.ldb, &zero, c.data<float>(), x.ldc);
  };
  CHECK(call({.alpha = &one}) == CUBLAS_STATUS_SUCCESS);
  CHECK(call({.alpha = nullptr}) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(call({.m = -1, .alpha = &one}) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(call({.lda = 3, .alpha = &one}) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(call({.ldb = 3, .alpha = &one}) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(call({.ldc = 3, .alpha = &one}) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(call({.transa = CUBLAS_OP_CONJG, .alpha = &one}) == CUBLAS_STATUS_INVALID_VALUE);
  // Nothing to do is no error, whatever the pointers.
  CHECK(cublasSgemm(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 0, 4, 4, &one, nullptr, 1, nullptr, 4, &zero, nullptr, 1) ==
        CUBLAS_STATUS_SUCCESS);
  CHECK(cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a.data<float>(), 4, b.data<float>(), 4, &zero,
                    c.data<float>(), 4) == CUBLAS_STATUS_NOT_INITIALIZED);
  // A matrix that ends behind its allocation.
  CHECK(call({.m = 4, .n = 5, .alpha = &one}) == CUBLAS_STATUS_EXECUTION_FAILED);
  CHECK(cublasGemmEx(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a.data(), CUDA_R_32F, 4, b.data(),
                     CUDA_R_16BF, 4, &zero, c.data(), CUDA_R_32F, 4, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(cublasGemmEx(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a.data(), CUDA_R_32F, 4, b.data(),
                     CUDA_R_32F, 4, &zero, c.data(), CUDA_R_32F, 4, CUBLAS_COMPUTE_64F,
                     CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(cublasSetMathMode(handle.blas, static_cast<cublasMath_t>(77)) == CUBLAS_STATUS_INVALID_VALUE);
  require_ok(cudaDeviceSynchronize());
}

TEST_CASE("a workspace must be aligned, is overwritten, and is given up by the next stream") {
  const Handle handle;
  const NumberArray a(std::vector<double>{1}), b(std::vector<double>{1}), c(1), space(std::vector<double>(128, 7));
  CHECK(cublasSetWorkspace(handle.blas, space.data<char>() + 16, 64) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasSetWorkspace(handle.blas, space.data(), 4096) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(cublasSetWorkspace(handle.blas, space.data(), 256) == CUBLAS_STATUS_SUCCESS);
  const float one = 1, zero = 0;
  const auto multiply = [&] {
    REQUIRE(cublasSgemm(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.data<float>(), 1, b.data<float>(), 1,
                        &zero, c.data<float>(), 1) == CUBLAS_STATUS_SUCCESS);
  };
  multiply();
  CHECK(std::isnan(space.download()[0]));
  CHECK(space.download()[64] == 7);
  REQUIRE(cublasSetStream(handle.blas, handle.stream) == CUBLAS_STATUS_SUCCESS);
  cudasim::reset_counters();
  multiply();
  CHECK(cudasim::counters().bytes_written == 4);
}

TEST_CASE("an asked-for failure comes back as cuBLAS's status, once") {
  const Handle handle;
  cudasim::fail_nth_library_call("cublasSetMathMode", 1, CUBLAS_STATUS_INTERNAL_ERROR);
  CHECK(cublasSetMathMode(handle.blas, CUBLAS_DEFAULT_MATH) == CUBLAS_STATUS_INTERNAL_ERROR);
  CHECK(cublasSetMathMode(handle.blas, CUBLAS_DEFAULT_MATH) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("a captured product runs at each launch of the graph") {
  const Handle handle;
  const NumberArray a(std::vector<double>{2}), b(std::vector<double>{3}), c(std::vector<double>{1});
  const float one = 1;
  require_ok(cudaDeviceSynchronize());
  require_ok(cudaStreamBeginCapture(handle.stream, cudaStreamCaptureModeThreadLocal));
  REQUIRE(cublasSgemm(handle.blas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.data<float>(), 1, b.data<float>(), 1,
                      &one, c.data<float>(), 1) == CUBLAS_STATUS_SUCCESS);
  cudaGraph_t graph = nullptr;
  require_ok(cudaStreamEndCapture(handle.stream, &graph));
  cudaGraphExec_t exec = nullptr;
  require_ok(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) require_ok(cudaGraphLaunch(exec, handle.stream));
  CHECK(c.download()[0] == 19);
  require_ok(cudaGraphExecDestroy(exec));
  require_ok(cudaGraphDestroy(graph));
}

TEST_CASE("handles: leaks are listed, use after destruction is refused, names of statuses are exact") {
  cudasim::reset();
  cublasHandle_t handle = nullptr;
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cudasim::leaks().size() == 1);
  CHECK(cudasim::leaks()[0].kind == "cuBLAS handle");
  int version = 0;
  CHECK(cublasGetVersion(handle, &version) == CUBLAS_STATUS_SUCCESS);
  CHECK(version == CUBLAS_VERSION);
  CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasDestroy(handle) == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH) == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK(std::strcmp(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED") == 0);
  cudasim::set_device_count(0);
  CHECK(cublasCreate(&handle) == CUBLAS_STATUS_NOT_INITIALIZED);
  cudasim::reset();
}
