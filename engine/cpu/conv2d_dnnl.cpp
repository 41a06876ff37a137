// Convolution by oneDNN. Activations keep their plain channels-last layout; weights are packed into the format that the
// implementation asks for (it has no fast kernel for the plain one), weight gradients are unpacked.
#include <algorithm>
#include <memory>
#include <vector>

#include "engine/cpu/conv2d_list.h"
#include "engine/cpu/dnnl_context.h"
#include "engine/cpu/masked_gradient.h"
#include "engine/cpu/packed_weights.h"

namespace heddle::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

enum class Pass : std::int64_t { forward, backward_data, backward_weight };

// Everything that decides which code oneDNN generates.
struct PlanKey {
  ConvSizes sizes;
  std::int64_t pass;
  std::int64_t dtype;
  std::int64_t threads;
};

struct Plan {
  DnnlPrimitive primitive;  // undefined: oneDNN has nothing fast
  DnnlConvolution descs;    // w as the primitive wants it
  Desc plain_w;
  bool packed = false;      // descs.w differs from plain_w
  std::int64_t format = 0;  // number of descs.w among the packed formats
  DnnlPrimitive reorder;    // forward, backward_data: plain_w to descs.w; backward_weight: the other way
  DnnlPrimitive reorder_add;
};

// Plans hold generated code: enough for a large network at a few batch sizes.
constexpr std::size_t kMaxPlans = 256;

// Equal formats get equal numbers, so that batch sizes that want the same one share packed weights.
std::int64_t format_number(const Desc& desc) {
  struct Format {
    Desc desc;
    std::int64_t number;
  };
  thread_local std::vector<Format> formats;
  thread_local std::int64_t next_number = 0;
  for (const Format& format : formats) {
    if (format.desc == desc) return format.number;
  }
  // One that is forgotten gets another number next time, and its weights are packed once more.
  if (formats.size() == kMaxPlans) formats.erase(formats.begin());
  formats.push_back({desc, next_number++});
  return formats.back().number;
}

// padding on the right and below as it follows from the other sizes; may be negative where the stride leaves input
// uncovered.
std::int64_t padding_right(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                           std::int64_t padding, std::int64_t dilation) {
  return (out - 1) * stride + (kernel - 1) * dilation + 1 - in - padding;
}

DnnlConvolution plain_convolution(const PlanKey& key, Desc& plain_w) {
  const ConvSizes& s = key.sizes;
  const Conv2dParams& p = s.params;
  const auto dtype = dnnl_dtype(static_cast<DType>(key.dtype));
  const bool grouped = p.groups != 1;
  const dnnl::memory::dims w_dims =
      grouped ? dnnl::memory::dims{p.groups, s.group_out_c(), s.group_in_c(), s.kernel_h, s.kernel_w}
              : dnnl::memory::dims{s.out_c, s.in_c, s.kernel_h, s.kernel_w};
  plain_w = Desc(w_dims, dtype, grouped ? Tag::gohwi : Tag::ohwi);
  return {
      .x = Desc({s.batch, s.in_c, s.in_h, s.in_w}, dtype, Tag::nhwc),
      .w = Desc(w_dims, dtype, Tag::any),
      // Forward and for the weight gradient always with a bias, so that one primitive serves calls with and without.
      .bias = key.pass == static_cast<std::int64_t>(Pass::backward_data) ? Desc() : Desc({s.out_c}, dtype, Tag::x),
      .y = Desc({s.batch, s.out_c, s.out_h, s.out_w}, dtype, Tag::nhwc),
      .strides = {p.stride_h, p.stride_w},
      .dilations = {p.dilation_h - 1, p.dilation_w - 1},
      .padding_left = {p.padding_h, p.padding_w},
      .padding_right = {padding_right(s.in_h, s.out_h, s.kernel_h, p.stride_h, p.padding_h, p.dilation_h),
                        padding_right(s.in_w, s.out_w, s.kernel_w, p.stride_w, p.padding_w, p.dilation_w)}};
}

Plan make_plan(const PlanKey& key) {
  return dnnl_call("convolution descriptors", [&] {
    Plan plan;
    plan.descs = plain_convolution(key, plan.plain_w);
    switch (static_cast<Pass>(key.pass)) {
      case Pass::forward: plan.primitive = make_dnnl_convolution_forward(plan.descs); break;
      case Pass::backward_data: plan.primitive = make_dnnl_convolution_backward_data(plan.descs); break;
      case Pass::backward_weight: plan.primitive = make_dnnl_convolution_backward_weight(plan.descs); break;
    }
    if (!plan.primitive.defined()) return plan;
    plan.packed = plan.descs.w != plan.plain_w;
    plan.format = format_number(plan.descs.w);
    if (static_cast<Pass>(key.pass) == Pass::backward_weight) {
      plan.reorder = make_dnnl_reorder(plan.descs.w, plan.plain_w, false);
      plan.reorder_add = make_dnnl_reorder(plan.descs.w, plan.plain_w, true);
      if (!plan.reorder.defined() || !plan.reorder_add.defined()) plan.primitive = {};
    } else if (plan.packed) {
      plan.reorder = make_dnnl_reorder(plan.plain_w, plan.descs.w, false);
      if (!plan.reorder.defined()) plan.primitive = {};
    }
    return plan;
  });
}

// The calling thread's plan, made at the first use. Needs a DnnlThreads of the same thread count.
const Plan& plan_for(const ConvSizes& sizes, Pass pass, DType dtype, const DnnlThreads& threads) {
  thread_local LruCache<PlanKey, Plan> plans(kMaxPlans);
  const PlanKey key{sizes, static_cast<std::int64_t>(pass), static_cast<std::int64_t>(dtype), threads.count()};
  if (const Plan* const plan = plans.find(key)) return *plan;
  return plans.insert(key, make_plan(key));
}

// True if all elements of the window read some input somewhere along one axis, so that none meets only padding.
bool all_taps_read(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                   std::int64_t dilation) {
  for (std::int64_t k = 0; k < kernel; ++k) {
    // The first window whose element k is not before the input.
    const std::int64_t first = std::max<std::int64_t>(0, (padding - k * dilation + stride - 1) / stride);
    if (first >= out || first * stride - padding + k * dilation >= in) return false;
  }
  return true;
}

bool supports(const ConvSizes& sizes, Pass pass, DType dtype) {
  if (!dnnl_has_dtype(dtype) || sizes.macs() == 0) return false;
  const DnnlThreads threads;
  return plan_for(sizes, pass, dtype, threads).primitive.defined();
}

// Weights in the plan's format; `memory` keeps them alive.
const void* packed_weights(const Plan& plan, Pass pass, const Tensor& w, std::shared_ptr<Storage>& memory) {
  if (!plan.packed) return w.raw_data();
  constexpr std::int64_t kDnnl = 1;
  memory = PackedWeights::local().get(
      w, {kDnnl, static_cast<std::int64_t>(pass), plan.format}, plan.descs.w.get_size(), [&](void* destination) {
        dnnl_run("reorder of weights", plan.reorder,
                 {{DNNL_ARG_FROM, &plan.plain_w, w.raw_data()}, {DNNL_ARG_TO, &plan.descs.w, destination}});
      });
  return memory->data();
}

}  // namespace

bool conv_forward_dnnl_supports(const ConvSizes& sizes, DType dtype) { return supports(sizes, Pass::forward, dtype); }
bool conv_backward_data_dnnl_supports(const ConvSizes& sizes, DType dtype) {
  return supports(sizes, Pass::backward_data, dtype);
}
bool conv_backward_weight_dnnl_supports(const ConvSizes& sizes, DType dtype) {
  // oneDNN 2.6 in bf16 leaves in the gradient of a weight that meets only padding what the memory held before.
  const Conv2dParams& p = sizes.params;
  if (dtype == DType::bf16 &&
      (!all_taps_read(sizes.in_h, sizes.out_h, sizes.kernel_h, p.stride_h, p.padding_h, p.dilation_h) ||
       !all_taps_read(sizes.in_w, sizes.out_w, sizes.kernel_w, p.stride_w, p.padding_w, p.dilation_w))) {
    return false;
  }
  return supports(sizes, Pass::backward_weight, dtype);
}

void conv_forward_dnnl(const ConvForwardCall& call) {
  const DnnlThreads threads;
  const Plan& plan = plan_for(call.sizes, Pass::forward, call.x.dtype(), threads);
  const Tensor bias = call.bias.defined() ? call.bias : Tensor::zeros({call.sizes.out_c}, call.x.dtype());
  std::shared_ptr<Storage> packed;
  const void* const w = packed_weights(plan, Pass::forward, call.w, packed);
  dnnl_run("convolution_forward", plan.primitive,
           {{DNNL_ARG_SRC, &plan.descs.x, call.x.raw_data()},
            {DNNL_ARG_WEIGHTS, &plan.descs.w, w},
            {DNNL_ARG_BIAS, &plan.descs.bias, bias.raw_data()},
            {DNNL_ARG_DST, &plan.descs.y, call.y.mutable_raw_data()}});
  // Not as a post-op: oneDNN's ReLU turns NaN into 0, and a diverged run would go on unnoticed.
  if (call.relu) relu_in_place(call.y);
}

void conv_backward_data_dnnl(const ConvBackwardDataCall& call) {
  const DnnlThreads threads;
  const Plan& plan = plan_for(call.sizes, Pass::backward_data, call.dy.dtype(), threads);
  std::shared_ptr<Storage> packed;
  const void* const w = packed_weights(plan, Pass::backward_data, call.w, packed);
  dnnl_run("convolution_backward_data", plan.primitive,
           {{DNNL_ARG_DIFF_DST, &plan.descs.y, call.dy.raw_data()},
            {DNNL_ARG_WEIGHTS, &plan.descs.w, w},
            {DNNL_ARG_DIFF_SRC, &plan.descs.x, call.dx.mutable_raw_data()}});
}

void conv_backward_weight_dnnl(const ConvBackwardWeightCall& call) {
  const DnnlThreads threads;
  const Plan& plan = plan_for(call.sizes, Pass::backward_weight, call.x.dtype(), threads);
  const bool add = call.mode == WriteMode::add;
  const bool direct = !plan.packed && !add;
  const auto packed = direct ? nullptr : Storage::allocate(plan.descs.w.get_size(), Device::cpu());
  // A bias gradient that nobody wants, or that has to be added, goes to scratch first.
  Tensor bias_gradient = call.db != nullptr && !add ? *call.db : Tensor::empty({call.sizes.out_c}, call.x.dtype());
  void* const dw = call.dw.mutable_raw_data();
  dnnl_run("convolution_backward_weights", plan.primitive,
           {{DNNL_ARG_SRC, &plan.descs.x, call.x.raw_data()},
            {DNNL_ARG_DIFF_DST, &plan.descs.y, call.dy.raw_data()},
            {DNNL_ARG_DIFF_WEIGHTS, &plan.descs.w, direct ? dw : packed->data()},
            {DNNL_ARG_DIFF_BIAS, &plan.descs.bias, bias_gradient.mutable_raw_data()}});
  if (!direct) {
    dnnl_run("reorder of a weight gradient", add ? plan.reorder_add : plan.reorder,
             {{DNNL_ARG_FROM, &plan.descs.w, packed->data()}, {DNNL_ARG_TO, &plan.plain_w, dw}});
  }
  if (call.db != nullptr && add) add_gradient(bias_gradient, Tensor(), *call.db);
}

}  // namespace heddle::cpu
