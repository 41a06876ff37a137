// The simulated cuBLASLt: epilogues against loops, the heuristic's limits, refusals.
#include <cublasLt.h>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/number_array.h"
#include "tests/support/catch.h"

namespace {

using cudasim::ElementType;

// One product d (m,n) = op(a) * op(b) of column-major matrices without padding, with everything it takes.
class Matmul {
 public:
  Matmul(std::int64_t m, std::int64_t n, std::int64_t k, cudaDataType_t type = CUDA_R_32F,
         cublasComputeType_t compute_type = CUBLAS_COMPUTE_32F)
      : m_(m), n_(n), k_(k) {
    cudasim::reset();
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulDescCreate(&descriptor, compute_type, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutCreate(&a_layout, type, m_u(m), m_u(k), m) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutCreate(&b_layout, type, m_u(k), m_u(n), k) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutCreate(&d_layout, type, m_u(m), m_u(n), m) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    require_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Matmul() {
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(a_layout);
    cublasLtMatrixLayoutDestroy(b_layout);
    cublasLtMatrixLayoutDestroy(d_layout);
    cublasLtMatmulDescDestroy(descriptor);
    cublasLtDestroy(handle);
    cudaStreamDestroy(stream);
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(descriptor, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
    REQUIRE(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms(int requested = 8) {
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(requested));
    int returned = 0;
    status = cublasLtMatmulAlgoGetHeuristic(handle, descriptor, a_layout, b_layout, d_layout, d_layout, preference,
                                            requested, results.data(), &returned);
    results.resize(static_cast<std::size_t>(returned));
    return results;
  }
  // With the algorithm that cuBLASLt takes itself, and no workspace.
  cublasStatus_t run(const void* a, const void* b, void* d, float alpha = 1, float beta = 0) {
    return cublasLtMatmul(handle, descriptor, &alpha, a, a_layout, b, b_layout, &beta, d, d_layout, d, d_layout,
                          nullptr, nullptr, 0, stream);
  }
  // op(a) * op(b) in loops; transpositions as given.
  std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b) const {
    std::vector<double> d(static_cast<std::size_t>(m_ * n_));
    for (std::int64_t j = 0; j < n_; ++j) {
      for (std::int64_t i = 0; i < m_; ++i) {
        for (std::int64_t p = 0; p < k_; ++p) {
          d[static_cast<std::size_t>(i + j * m_)] +=
              a[static_cast<std::size_t>(i + p * m_)] * b[static_cast<std::size_t>(p + j * k_)];
        }
      }
    }
    return d;
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t descriptor = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, d_layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cudaStream_t stream = nullptr;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

 private:
  static std::uint64_t m_u(std::int64_t value) { return static_cast<std::uint64_t>(value); }
  std::int64_t m_, n_, k_;
};

}  // namespace

TEST_CASE("cublasLt: bias and ReLU in the epilogue, with the mask of the ReLU") {
  const std::int64_t m = 5, n = 4, k = 6;
  Matmul matmul(m, n, k);
  const auto a = varied(m * k, 1), b = varied(k * n, 2), bias = varied(m, 3);
  const NumberArray device_a(a), device_b(b), device_bias(bias), d(m * n);
  const NumberArray mask(std::vector<double>(128 * n, 1.0), ElementType::boolean);
  const bool with_mask = GENERATE(false, true);
  matmul.set<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE,
                            with_mask ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS);
  matmul.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, device_bias.data());
  matmul.set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask.data());
  matmul.set<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 128);
  cudasim::reset_counters();
  REQUIRE(matmul.run(device_a.data(), device_b.data(), d.data()) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudasim::counters().library_calls == 1);
  auto expected = matmul.product(a, b);
  const auto bits = mask.download();
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < m; ++i) {
      double& value = expected[static_cast<std::size_t>(i + j * m)];
      value += bias[static_cast<std::size_t>(i)];
      const double bit = bits[static_cast<std::size_t>(i + j * 128)];
      CHECK(bit == (with_mask && value <= 0 ? 0 : 1));
      value = std::max(value, 0.0);
    }
    // Behind the rows the mask keeps what it had.
    CHECK(bits[static_cast<std::size_t>(m + j * 128)] == 1);
  }
  CHECK(largest_error(d.download(), expected) < 1e-6);
}

TEST_CASE("cublasLt: the gradient of a ReLU by its mask, and the bias gradient of the result") {
  const std::int64_t m = 3, n = 5, k = 2;
  Matmul matmul(m, n, k);
  const auto a = varied(m * k, 1), b = varied(k * n, 2);
  std::vector<double> bits(128 * n);
  for (std::int64_t i = 0; i < 128 * n; ++i) bits[static_cast<std::size_t>(i)] = i % 3 == 0;
  const NumberArray device_a(a), device_b(b), d(m * n), gradient(m), mask(bits, ElementType::boolean);
  matmul.set<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DRELU_BGRAD);
  matmul.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, gradient.data());
  matmul.set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask.data());
  matmul.set<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 128);
  REQUIRE(matmul.run(device_a.data(), device_b.data(), d.data()) == CUBLAS_STATUS_SUCCESS);
  auto expected = matmul.product(a, b);
  std::vector<double> sums(static_cast<std::size_t>(m));
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < m; ++i) {
      double& value = expected[static_cast<std::size_t>(i + j * m)];
      value *= bits[static_cast<std::size_t>(i + j * 128)];
      sums[static_cast<std::size_t>(i)] += value;
    }
  }
  CHECK(largest_error(d.download(), expected) < 1e-6);
  CHECK(largest_error(gradient.download(), sums) < 1e-6);
}

TEST_CASE("cublasLt: bias gradients of the factors are sums over the depth") {
  const std::int64_t m = 3, n = 4, k = 7;
  Matmul matmul(m, n, k);
  const auto a = varied(m * k, 1), b = varied(k * n, 2);
  const NumberArray device_a(a), device_b(b), d(m * n), gradient(4);
  const bool of_b = GENERATE(false, true);
  matmul.set<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, of_b ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA);
  matmul.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, gradient.data());
  REQUIRE(matmul.run(device_a.data(), device_b.data(), d.data()) == CUBLAS_STATUS_SUCCESS);
  const auto got = gradient.download();
  for (std::int64_t i = 0; i < (of_b ? n : m); ++i) {
    double sum = 0;
    for (std::int64_t p = 0; p < k; ++p) {
      sum += of_b ? b[static_cast<std::size_t>(p + i * k)] : a[static_cast<std::size_t>(i + p * m)];
    }
    CHECK(got[static_cast<std::size_t>(i)] == Approx(sum).margin(1e-6));
  }
  CHECK(largest_error(d.download(), matmul.product(a, b)) < 1e-6);
}

TEST_CASE("cublasLt: row-major matrices, a batch, and an added c that is another matrix than d") {
  const std::int64_t m = 2, n = 3, k = 4, batch = 2;
  Matmul matmul(m, n, k);
  for (const auto layout : {matmul.a_layout, matmul.b_layout, matmul.d_layout}) {
    matmul.set<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_ROW);
    matmul.set<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch);
  }
  matmul.set<std::int64_t>(matmul.a_layout, CUBLASLT_MATRIX_LAYOUT_LD, k);
  matmul.set<std::int64_t>(matmul.b_layout, CUBLASLT_MATRIX_LAYOUT_LD, n);
  matmul.set<std::int64_t>(matmul.d_layout, CUBLASLT_MATRIX_LAYOUT_LD, n);
  matmul.set<std::int64_t>(matmul.a_layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m * k);
  matmul.set<std::int64_t>(matmul.b_layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, k * n);
  matmul.set<std::int64_t>(matmul.d_layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m * n);
  const auto a = varied(batch * m * k, 1), b = varied(batch * k * n, 2), c = varied(batch * m * n, 3);
  const NumberArray device_a(a), device_b(b), device_c(c), d(batch * m * n);
  const float alpha = 2, beta = 3;
  REQUIRE(cublasLtMatmul(matmul.handle, matmul.descriptor, &alpha, device_a.data(), matmul.a_layout, device_b.data(),
                         matmul.b_layout, &beta, device_c.data(), matmul.d_layout, d.data(), matmul.d_layout, nullptr,
                         nullptr, 0, matmul.stream) == CUBLAS_STATUS_SUCCESS);
  std::vector<double> expected;
  for (std::int64_t q = 0; q < batch; ++q) {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          sum += a[static_cast<std::size_t>((q * m + i) * k + p)] * b[static_cast<std::size_t>((q * k + p) * n + j)];
        }
        expected.push_back(2 * sum + 3 * c[static_cast<std::size_t>((q * m + i) * n + j)]);
      }
    }
  }
  CHECK(largest_error(d.download(), expected) < 1e-6);
}

TEST_CASE("cublasLt: bfloat16 in and out, and TF32 on request") {
  SECTION("bfloat16") {
    Matmul matmul(3, 2, 30, CUDA_R_16BF);
    const auto a = varied(90, 1), b = varied(60, 2);
    const NumberArray device_a(a, ElementType::bfloat16), device_b(b, ElementType::bfloat16);
    const NumberArray d(6, ElementType::bfloat16);
    REQUIRE(matmul.run(device_a.data(), device_b.data(), d.data()) == CUBLAS_STATUS_SUCCESS);
    const auto exact = matmul.product(a, b), got = d.download();
    for (std::size_t i = 0; i < 6; ++i) CHECK(got[i] == cudasim::round_to(ElementType::bfloat16, exact[i]));
  }
  SECTION("TF32") {
    Matmul matmul(1, 1, 1, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
    const NumberArray a(std::vector<double>{1 + 1.0 / 4096}), b(std::vector<double>{1}), d(1);
    REQUIRE(matmul.run(a.data(), b.data(), d.data()) == CUBLAS_STATUS_SUCCESS);
    CHECK(d.download()[0] == 1);
  }
}

TEST_CASE("cublasLt: the heuristic offers what fits the workspace and the alignment, best first") {
  Matmul matmul(64, 64, 64);
  SECTION("without a workspace there is one") {
    const auto algorithms = matmul.algorithms();
    REQUIRE(algorithms.size() == 1);
    CHECK(algorithms[0].workspaceSize == 0);
    CHECK(algorithms[0].state == CUBLAS_STATUS_SUCCESS);
  }
  SECTION("with one there are several, with odd sizes") {
    matmul.set<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1 << 20);
    const auto algorithms = matmul.algorithms();
    REQUIRE(algorithms.size() == 3);
    CHECK(algorithms[0].workspaceSize == 32769);
    CHECK(algorithms[1].workspaceSize == 32771);
    CHECK(matmul.algorithms(2).size() == 2);
    matmul.set<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 32770);
    CHECK(matmul.algorithms().size() == 2);
    matmul.set<std::uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_NONE);
    CHECK(matmul.algorithms().size() == 1);
  }
  SECTION("matrices at any float want an algorithm that can do without alignment") {
    matmul.set<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1 << 20);
    matmul.set<std::uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4);
    CHECK(matmul.algorithms().size() == 1);
  }
  SECTION("refusals") {
    int returned = -1;
    cublasLtMatmulHeuristicResult_t result;
    CHECK(cublasLtMatmulAlgoGetHeuristic(matmul.handle, matmul.descriptor, matmul.a_layout, matmul.b_layout,
                                         matmul.d_layout, matmul.d_layout, matmul.preference, 0, &result,
                                         &returned) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasLtMatmulAlgoGetHeuristic(matmul.handle, matmul.descriptor, matmul.b_layout, matmul.b_layout,
                                         matmul.d_layout, nullptr, matmul.preference, 1, &result,
                                         &returned) == CUBLAS_STATUS_INVALID_VALUE);
    matmul.set<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
    CHECK(matmul.algorithms().empty());
    CHECK(matmul.status == CUBLAS_STATUS_NOT_SUPPORTED);
  }
}

TEST_CASE("cublasLt: a chosen algorithm needs its workspace, overwrites it, and fits its shape only") {
  const std::int64_t m = 8, n = 8, k = 8;
  Matmul matmul(m, n, k);
  matmul.set<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1 << 20);
  const auto algorithms = matmul.algorithms();
  REQUIRE(algorithms.size() == 3);
  const cublasLtMatmulAlgo_t algorithm = algorithms[0].algo;
  const std::size_t needed = algorithms[0].workspaceSize;
  const auto a = varied(64, 1), b = varied(64, 2);
  const NumberArray device_a(a), device_b(b), d(64), space(std::vector<double>(1024, 5));
  const float one = 1, zero = 0;
  const auto run = [&](const void* first, void* workspace, std::size_t nbytes) {
    return cublasLtMatmul(matmul.handle, matmul.descriptor, &one, first, matmul.a_layout, device_b.data(),
                          matmul.b_layout, &zero, d.data(), matmul.d_layout, d.data(), matmul.d_layout, &algorithm,
                          workspace, nbytes, matmul.stream);
  };
  CHECK(run(device_a.data(), space.data(), needed - 1) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(run(device_a.data(), nullptr, needed) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(run(device_a.data(), space.data<char>() + 4, needed) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(run(device_a.data<char>() + 4, space.data(), needed) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(run(device_a.data(), space.data(), needed) == CUBLAS_STATUS_SUCCESS);
  CHECK(largest_error(d.download(), matmul.product(a, b)) < 1e-6);
  CHECK(std::isnan(space.download()[0]));
  CHECK(space.download()[needed / 4 + 1] == 5);
  matmul.set<std::uint64_t>(matmul.a_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, 7);
  matmul.set<std::uint64_t>(matmul.d_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, 7);
  CHECK(run(device_a.data(), space.data(), needed) == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("cublasLt refuses what it documents as wrong") {
  Matmul matmul(4, 4, 4);
  const NumberArray a(16), b(16), d(16);
  CHECK(matmul.run(nullptr, b.data(), d.data()) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(matmul.run(a.data(), b.data(), nullptr) == CUBLAS_STATUS_INVALID_VALUE);
  const float one = 1;
  CHECK(cublasLtMatmul(matmul.handle, matmul.descriptor, &one, a.data(), matmul.a_layout, b.data(), matmul.b_layout,
                       nullptr, d.data(), matmul.d_layout, d.data(), matmul.d_layout, nullptr, nullptr, 0,
                       matmul.stream) == CUBLAS_STATUS_INVALID_VALUE);
  const std::int32_t wrong_size = 0;
  CHECK(cublasLtMatmulDescSetAttribute(matmul.descriptor, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &wrong_size, 4) ==
        CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatrixLayoutSetAttribute(matmul.a_layout, CUBLASLT_MATRIX_LAYOUT_LD, nullptr, 8) ==
        CUBLAS_STATUS_INVALID_VALUE);
  SECTION("a bias without a pointer") {
    matmul.set<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    CHECK(matmul.run(a.data(), b.data(), d.data()) == CUBLAS_STATUS_INVALID_VALUE);
  }
  SECTION("a mask whose lines are not multiples of 128 bits") {
    matmul.set<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_AUX);
    matmul.set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, d.data());
    matmul.set<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 64);
    CHECK(matmul.run(a.data(), b.data(), d.data()) == CUBLAS_STATUS_INVALID_VALUE);
  }
  SECTION("sizes that do not fit") {
    matmul.set<std::uint64_t>(matmul.b_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, 3);
    CHECK(matmul.run(a.data(), b.data(), d.data()) == CUBLAS_STATUS_INVALID_VALUE);
  }
  SECTION("a leading dimension below the rows") {
    matmul.set<std::int64_t>(matmul.b_layout, CUBLASLT_MATRIX_LAYOUT_LD, 3);
    CHECK(matmul.run(a.data(), b.data(), d.data()) == CUBLAS_STATUS_INVALID_VALUE);
  }
  SECTION("mixed types") {
    matmul.set<std::uint32_t>(matmul.b_layout, CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_16BF);
    CHECK(matmul.run(a.data(), b.data(), d.data()) == CUBLAS_STATUS_NOT_SUPPORTED);
  }
  SECTION("an epilogue on row-major results") {
    for (const auto layout : {matmul.a_layout, matmul.b_layout, matmul.d_layout}) {
      matmul.set<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_ROW);
    }
    matmul.set<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
    CHECK(matmul.run(a.data(), b.data(), d.data()) == CUBLAS_STATUS_NOT_SUPPORTED);
  }
  SECTION("a descriptor that was destroyed") {
    cublasLtMatrixLayout_t gone = nullptr;
    REQUIRE(cublasLtMatrixLayoutCreate(&gone, CUDA_R_32F, 4, 4, 4) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutDestroy(gone) == CUBLAS_STATUS_SUCCESS);
    const float zero = 0;
    CHECK(cublasLtMatmul(matmul.handle, matmul.descriptor, &one, a.data(), gone, b.data(), matmul.b_layout, &zero,
                         d.data(), matmul.d_layout, d.data(), matmul.d_layout, nullptr, nullptr, 0,
                         matmul.stream) == CUBLAS_STATUS_INVALID_VALUE);
  }
}
