// Matrix products by oneDNN's matmul primitive.
#include "engine/cpu/dnnl_context.h"
#include "engine/cpu/lru_cache.h"
#include "engine/cpu/matmul_list.h"

namespace heddle::cpu {
namespace {

using Desc = dnnl::memory::desc;

struct PlanKey {
  GemmSizes sizes;
  std::int64_t dtype;
  std::int64_t bias;
  std::int64_t accumulate;
  std::int64_t threads;
};

struct Plan {
  DnnlPrimitive primitive;  // undefined: oneDNN has nothing fast
  Desc a, b, bias, y;
};

constexpr std::size_t kMaxPlans = 256;

// Row-major matrices of a batch, stored transposed if so asked.
Desc matrix_desc(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed,
                 dnnl::memory::data_type dtype) {
  const std::int64_t row_stride = transposed ? 1 : columns, column_stride = transposed ? rows : 1;
  if (batch == 1) return Desc({rows, columns}, dtype, dnnl::memory::dims{row_stride, column_stride});
  return Desc({batch, rows, columns}, dtype, dnnl::memory::dims{rows * columns, row_stride, column_stride});
}

Plan make_plan(const PlanKey& key) {
  return dnnl_call("matmul descriptors", [&] {
    const GemmSizes& s = key.sizes;
    const auto dtype = dnnl_dtype(static_cast<DType>(key.dtype));
    Plan plan{.primitive = {},
              .a = matrix_desc(s.batch, s.m, s.k, s.transpose_a != 0, dtype),
              .b = matrix_desc(s.batch, s.k, s.n, s.transpose_b != 0, dtype),
              .bias = key.bias != 0 ? matrix_desc(1, 1, s.n, false, dtype) : Desc(),
              .y = matrix_desc(s.batch, s.m, s.n, false, dtype)};
    plan.primitive = make_dnnl_matmul(plan.a, plan.b, plan.bias, plan.y, key.accumulate != 0);
    return plan;
  });
}

// The calling thread's plan, made at the first use. Needs a DnnlThreads of the same thread count.
const Plan& plan_for(const GemmSizes& sizes, DType dtype, bool bias, WriteMode mode, const DnnlThreads& threads) {
  thread_local LruCache<PlanKey, Plan> plans(kMaxPlans);
  const PlanKey key{sizes, static_cast<std::int64_t>(dtype), bias ? 1 : 0, mode == WriteMode::add ? 1 : 0,
                    threads.count()};
  if (const Plan* const plan = plans.find(key)) return *plan;
  return plans.insert(key, make_plan(key));
}

}  // namespace

bool gemm_dnnl_supports(const GemmSizes& sizes, DType dtype, bool bias, WriteMode mode) {
  if (!dnnl_has_dtype(dtype) || sizes.batch == 0 || sizes.m == 0 || sizes.n == 0 || sizes.k == 0) return false;
  const DnnlThreads threads;
  return plan_for(sizes, dtype, bias, mode, threads).primitive.defined();
}

void gemm_dnnl(const GemmCall& call) {
  const DnnlThreads threads;
  const Plan& plan = plan_for(call.sizes, call.a.dtype(), call.bias.defined(), call.mode, threads);
  dnnl_run("matmul", plan.primitive,
           {{DNNL_ARG_SRC, &plan.a, call.a.raw_data()},
            {DNNL_ARG_WEIGHTS, &plan.b, call.b.raw_data()},
            {DNNL_ARG_BIAS, &plan.bias, call.bias.raw_data()},
            {DNNL_ARG_DST, &plan.y, call.y.mutable_raw_data()}});
}

}  // namespace heddle::cpu
