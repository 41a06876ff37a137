// cuBLASLt counts matrices by columns. A row-major matrix is a column-major one transposed, so the product is asked for
// as y^T = op(b)^T op(a)^T: b is cuBLAS's left operand, its rows are our columns. The bias of our columns is then the
// bias of its rows, which is what its epilogue offers; row sums of op(a) are the bias gradient of its right operand.
#include "kernels/cuda/cublas_gemm.h"

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/backend/math_settings.h"
#include "engine/tensor/tensor.h"
#include "kernels/cuda/hash_key.h"
#include "kernels/launch/check.h"
#include "kernels/launch/launch_log.h"
#include "kernels/launch/profile.h"

namespace heddle::cuda {
namespace {

void check_cublas(cublasStatus_t status, const char* call, CallPlace place = CallPlace::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw_device_error("cuBLASLt", call, cublasLtGetStatusName(status), cublasLtGetStatusString(status), place);
}
#define HEDDLE_CUBLAS_CHECK(call) check_cublas((call), #call)

// Says that it does not compute this, with nothing queued. Other statuses are of something that went wrong.
constexpr bool is_refusal(cublasStatus_t status) noexcept {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH ||
         status == CUBLAS_STATUS_INVALID_VALUE;
}

// A descriptor of cuBLASLt: made by one function, destroyed by another.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(Handle handle) : handle_(handle) {}
  ~Descriptor() {
    if (handle_ != nullptr) destroy(handle_);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Handle get() const noexcept { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Operation = Descriptor<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Descriptor<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Descriptor<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// Everything that an algorithm's choice depends on. Plain data, hashed as bytes.
struct Key {
  std::int64_t batch, rows, columns, depth;
  std::int64_t workspace_limit;
  std::int32_t data_type, epilogue;
  std::uint16_t alignment_a, alignment_b, alignment_y;
  std::uint8_t transpose_a, transpose_b, add, tf32, deterministic;
  std::uint8_t unused = 0, unused_2 = 0, unused_3 = 0;
  std::uint16_t unused_4 = 0;
};

// The largest power of two up to 256 that divides the address.
std::uint16_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256u;
  return static_cast<std::uint16_t>(address & (~address + 1));
}

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

// One shape's descriptors and algorithms that were not refused, best first.
struct Plan {
  Operation operation;
  Layout a, b, y;  // in our naming
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms;
};

Layout make_layout(const Key& key, bool transposed, std::int64_t rows, std::int64_t columns) {
  // Stored row-major as (rows,columns), or (columns,rows) if transposed: cuBLAS sees it the other way round.
  if (transposed) std::swap(rows, columns);
  cublasLtMatrixLayout_t layout = nullptr;
  HEDDLE_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, static_cast<cudaDataType_t>(key.data_type),
                                                 static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows),
                                                 columns));
  Layout owned(layout);
  if (key.batch > 1) {
    const auto count = static_cast<std::int32_t>(key.batch);
    const std::int64_t stride = rows * columns;
    HEDDLE_CUBLAS_CHECK(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    HEDDLE_CUBLAS_CHECK(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
  }
  return owned;
}

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  HEDDLE_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value));
}
template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  HEDDLE_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
}

Operation make_operation(const Key& key) {
  const cublasComputeType_t compute = key.tf32 != 0 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t descriptor = nullptr;
  HEDDLE_CUBLAS_CHECK(cublasLtMatmulDescCreate(&descriptor, compute, CUDA_R_32F));
  Operation operation(descriptor);
  const auto transpose = [](std::uint8_t on) { return static_cast<std::int32_t>(on != 0 ? CUBLAS_OP_T : CUBLAS_OP_N); };
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, transpose(key.transpose_b));
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, transpose(key.transpose_a));
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<cublasLtEpilogue_t>(key.epilogue));
  return operation;
}

Preference make_preference(const Key& key) {
  cublasLtMatmulPreference_t made = nullptr;
  HEDDLE_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(key.workspace_limit));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{key.alignment_b});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{key.alignment_a});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{key.alignment_y});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{key.alignment_y});
  if (key.deterministic != 0) {
    // Sums that are made in place are made in the order of arrival.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_MASK & ~CUBLASLT_REDUCTION_SCHEME_INPLACE));
  }
  return preference;
}

template <class T>
std::int32_t epilogue_of(const GemmCall<T>& call) {
  if (call.row_sums != nullptr) return CUBLASLT_EPILOGUE_BGRADB;
  if (call.bias != nullptr) return call.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return call.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

template <class T>
Key key_of(const GemmCall<T>& call, const MathSettings& settings) {
  return {.batch = call.batch,
          .rows = call.rows,
          .columns = call.columns,
          .depth = call.depth,
          .workspace_limit = static_cast<std::int64_t>(settings.workspace_limit_nbytes),
          .data_type = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF,
          .epilogue = epilogue_of(call),
          .alignment_a = alignment_of(call.a),
          .alignment_b = alignment_of(call.b),
          .alignment_y = alignment_of(call.y),
          .transpose_a = call.transpose_a ? std::uint8_t{1} : std::uint8_t{0},
          .transpose_b = call.transpose_b ? std::uint8_t{1} : std::uint8_t{0},
          .add = call.add ? std::uint8_t{1} : std::uint8_t{0},
          .tf32 = std::is_same_v<T, float> && settings.f32_products == F32Products::tf32 ? std::uint8_t{1}
                                                                                         : std::uint8_t{0},
          .deterministic = settings.deterministic ? std::uint8_t{1} : std::uint8_t{0}};
}

}  // namespace

struct CublasGemm::State {
  explicit State(Device where) : device(where) {}
  ~State() {
    if (handle != nullptr) cublasLtDestroy(handle);
  }

  // The plan of a shape, made at its first call. Throws: DeviceError.
  Plan& plan(const Key& key) {
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    if (handle == nullptr) HEDDLE_CUBLAS_CHECK(cublasLtCreate(&handle));
    Plan plan{make_operation(key), make_layout(key, key.transpose_a != 0, key.rows, key.depth),
              make_layout(key, key.transpose_b != 0, key.depth, key.columns),
              make_layout(key, false, key.rows, key.columns),
              std::vector<cublasLtMatmulHeuristicResult_t>(kCandidates)};
    const Preference preference = make_preference(key);
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, plan.operation.get(), plan.b.get(), plan.a.get(), plan.y.get(),
                                       plan.y.get(), preference.get(), kCandidates, plan.algorithms.data(), &count);
    if (!is_refusal(status)) check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
    plan.algorithms.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
    std::erase_if(plan.algorithms, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
    return plans.emplace(key, std::move(plan)).first->second;
  }

  static constexpr int kCandidates = 8;
  Device device;
  std::mutex mutex;  // guards the rest: a plan's operation holds the pointers of the call at hand
  cublasLtHandle_t handle = nullptr;
  std::unordered_map<Key, Plan, BytesHash<Key>, BytesEqual<Key>> plans;
};

CublasGemm::CublasGemm(Device device) : state_(std::make_unique<State>(device)) {}
CublasGemm::~CublasGemm() = default;

std::string CublasGemm::version() {
  const std::size_t number = cublasLtGetVersion();
  return join_text("cuBLASLt ", number / 10000, ".", number / 100 % 100);
}

template <class T>
bool CublasGemm::multiply(const GemmCall<T>& call, cudaStream_t stream) {
  const std::lock_guard lock(state_->mutex);
  if (call.depth == 0) return false;
  // The heuristic is told the alignment of the matrices; that of the vectors is not among what it asks for.
  if (!is_aligned(call.bias) || !is_aligned(call.row_sums)) return false;
  Plan& plan = state_->plan(key_of(call, math_settings()));
  std::exception_ptr out_of_memory;
  std::size_t too_much = std::numeric_limits<std::size_t>::max();  // bytes of scratch for which there is no room
  for (std::size_t i = 0; i < plan.algorithms.size();) {
    const std::size_t nbytes = plan.algorithms[i].workspaceSize;
    if (nbytes >= too_much) {
      ++i;
      continue;
    }
    Tensor workspace;
    try {
      if (nbytes > 0) workspace = Tensor::empty({static_cast<std::int64_t>(nbytes)}, DType::u8, state_->device);
    } catch (const OutOfMemory&) {
      out_of_memory = std::current_exception();
      too_much = nbytes;
      continue;
    }
    if (call.row_sums != nullptr) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.row_sums);
    if (call.bias != nullptr) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
    const std::int64_t y_count = call.batch * call.rows * call.columns;
    const std::array accesses = {
        reads(call.a, call.batch * call.rows * call.depth),
        reads(call.b, call.batch * call.depth * call.columns),
        call.add ? updates(call.y, y_count) : writes(call.y, y_count),
        reads(call.bias, call.columns),
        writes(call.row_sums, call.rows),
        workspace_bytes(workspace.mutable_raw_data(), workspace.defined() ? workspace.nbytes() : 0)};
    note_launch("cublasLtMatmul", accesses);
    const profile::Range range("cublasLtMatmul");
    const float alpha = 1, beta = call.add ? 1.0f : 0.0f;
    const cublasStatus_t status = cublasLtMatmul(
        state_->handle, plan.operation.get(), &alpha, call.b, plan.b.get(), call.a, plan.a.get(), &beta, call.y,
        plan.y.get(), call.y, plan.y.get(), &plan.algorithms[i].algo, workspace.mutable_raw_data(), nbytes, stream);
    if (!is_refusal(status)) {
      check_cublas(status, "cublasLtMatmul");
      return true;
    }
    // It will be refused the next time too.
    plan.algorithms.erase(plan.algorithms.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (out_of_memory) std::rethrow_exception(out_of_memory);
  return false;
}

template bool CublasGemm::multiply(const GemmCall<float>&, cudaStream_t);
template bool CublasGemm::multiply(const GemmCall<__nv_bfloat16>&, cudaStream_t);

}  // namespace heddle::cuda
