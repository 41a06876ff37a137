#include "engine/cpu/dnnl_context.h"

#include <omp.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>

#include "engine/core/parallel.h"

namespace heddle::cpu {
namespace {

std::mutex names_mutex;

std::set<std::string>& names() {
  static std::set<std::string> instance;
  return instance;
}

std::string version_text() {
  const dnnl_version_t* const version = dnnl_version();
  return join_text("oneDNN ", version->major, '.', version->minor, '.', version->patch);
}

const char* status_name(dnnl_status_t status) {
  switch (status) {
    case dnnl_success: return "success";
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "unimplemented";
    case dnnl_runtime_error: return "runtime error";
    case dnnl_not_required: return "not required";
    default: return "unknown status";
  }
}

const char* isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41: return "SSE4.1";
    case dnnl::cpu_isa::avx: return "AVX";
    case dnnl::cpu_isa::avx2: return "AVX2";
    case dnnl::cpu_isa::avx2_vnni: return "AVX2 with VNNI";
    case dnnl::cpu_isa::avx512_core: return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni: return "AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16: return "AVX-512 with bfloat16";
    default: return dnnl_has_dtype(DType::bf16) ? "AVX-512 with bfloat16 or newer" : "generic instructions";
  }
}

dnnl::primitive_attr user_scratchpad(bool accumulate = false) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops post_ops;
    post_ops.append_sum(1.0f);
    attributes.set_post_ops(post_ops);
  }
  return attributes;
}

// Runs the maker of a descriptor. A combination that oneDNN does not offer gives an empty one.
template <class Descriptor, class Maker>
Descriptor optional_descriptor(const char* call, Maker&& maker) {
  try {
    return maker();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return Descriptor{};
    throw_dnnl_error(call, error);
  }
}

template <class Primitive, class Descriptor>
DnnlPrimitive compile(const char* call, const Descriptor& descriptor) {
  return dnnl_call(call, [&] {
    DnnlPrimitive made;
    if (!descriptor) return made;
    const std::string name = descriptor.impl_info_str();
    if (name.starts_with("ref")) return made;
    made.primitive = Primitive(descriptor);
    made.scratchpad = descriptor.scratchpad_desc();
    const std::lock_guard lock(names_mutex);
    names().insert(name);
    return made;
  });
}

#if DNNL_VERSION_MAJOR >= 3

dnnl::convolution_forward::primitive_desc forward_descriptor(const DnnlConvolution& c) {
  return dnnl::convolution_forward::primitive_desc(
      dnnl_engine(), dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, c.x, c.w, c.bias, c.y,
      c.strides, c.dilations, c.padding_left, c.padding_right, user_scratchpad(), true);
}

dnnl::convolution_backward_data::primitive_desc backward_data_descriptor(
    const DnnlConvolution& c, const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_data::primitive_desc(dnnl_engine(), dnnl::algorithm::convolution_direct, c.x, c.w,
                                                         c.y, c.strides, c.dilations, c.padding_left, c.padding_right,
                                                         hint, user_scratchpad(), true);
}

dnnl::convolution_backward_weights::primitive_desc backward_weight_descriptor(
    const DnnlConvolution& c, const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_weights::primitive_desc(dnnl_engine(), dnnl::algorithm::convolution_direct, c.x,
                                                            c.w, c.bias, c.y, c.strides, c.dilations, c.padding_left,
                                                            c.padding_right, hint, user_scratchpad(), true);
}

dnnl::matmul::primitive_desc matmul_descriptor(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                               const dnnl::memory::desc& bias, const dnnl::memory::desc& c,
                                               const dnnl::primitive_attr& attributes) {
  return dnnl::matmul::primitive_desc(dnnl_engine(), a, b, bias, c, attributes, true);
}

#else

dnnl::convolution_forward::primitive_desc forward_descriptor(const DnnlConvolution& c) {
  const dnnl::convolution_forward::desc description(dnnl::prop_kind::forward_training,
                                                    dnnl::algorithm::convolution_direct, c.x, c.w, c.bias, c.y,
                                                    c.strides, c.dilations, c.padding_left, c.padding_right);
  return dnnl::convolution_forward::primitive_desc(description, user_scratchpad(), dnnl_engine(), true);
}

dnnl::convolution_backward_data::primitive_desc backward_data_descriptor(
    const DnnlConvolution& c, const dnnl::convolution_forward::primitive_desc& hint) {
  const dnnl::convolution_backward_data::desc description(dnnl::algorithm::convolution_direct, c.x, c.w, c.y, c.strides,
                                                          c.dilations, c.padding_left, c.padding_right);
  return dnnl::convolution_backward_data::primitive_desc(description, user_scratchpad(), dnnl_engine(), hint, true);
}

dnnl::convolution_backward_weights::primitive_desc backward_weight_descriptor(
    const DnnlConvolution& c, const dnnl::convolution_forward::primitive_desc& hint) {
  const dnnl::convolution_backward_weights::desc description(dnnl::algorithm::convolution_direct, c.x, c.w, c.bias, c.y,
                                                             c.strides, c.dilations, c.padding_left, c.padding_right);
  return dnnl::convolution_backward_weights::primitive_desc(description, user_scratchpad(), dnnl_engine(), hint, true);
}

dnnl::matmul::primitive_desc matmul_descriptor(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                               const dnnl::memory::desc& bias, const dnnl::memory::desc& c,
                                               const dnnl::primitive_attr& attributes) {
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, bias, c), attributes, dnnl_engine(), true);
}

#endif

// The descriptor that backward descriptors ask for, so that oneDNN can match formats. Only its existence matters here.
dnnl::convolution_forward::primitive_desc forward_hint(const DnnlConvolution& convolution) {
  return optional_descriptor<dnnl::convolution_forward::primitive_desc>(
      "convolution_forward", [&] { return forward_descriptor(convolution); });
}

}  // namespace

std::string dnnl_description() { return version_text() + ", " + isa_name(dnnl::get_effective_cpu_isa()); }

std::vector<std::string> dnnl_implementations() {
  const std::lock_guard lock(names_mutex);
  return {names().begin(), names().end()};
}

bool dnnl_has_dtype(DType dtype) {
  if (dtype == DType::f32) return true;
  if (dtype != DType::bf16) return false;
  // Instruction sets are sets of bits: everything from AVX-512 on computes in bf16, if not always fast.
  constexpr int kAvx512 = static_cast<int>(dnnl_cpu_isa_avx512_core);
  static const bool has = (static_cast<int>(dnnl::get_effective_cpu_isa()) & kAvx512) == kAvx512;
  return has;
}

int DnnlThreads::wanted() noexcept {
  // In a parallel region a second one would get one thread, whatever was asked for.
  return omp_in_parallel() != 0 ? 1 : std::min(num_threads(), omp_get_thread_limit());
}

DnnlThreads::DnnlThreads()
    : count_(wanted()), previous_count_(omp_get_max_threads()), previous_dynamic_(omp_get_dynamic()) {
  if (count_ != previous_count_) omp_set_num_threads(count_);
  if (previous_dynamic_ != 0) omp_set_dynamic(0);
}

DnnlThreads::~DnnlThreads() {
  if (count_ != previous_count_) omp_set_num_threads(previous_count_);
  if (previous_dynamic_ != 0) omp_set_dynamic(previous_dynamic_);
}

void throw_dnnl_error(const char* call, const dnnl::error& error) {
  throw DeviceError(
      join_text(version_text(), ": ", call, " failed: ", status_name(error.status), " (", error.what(), ')'));
}

const dnnl::engine& dnnl_engine() {
  static const dnnl::engine instance =
      dnnl_call("engine_create", [] { return dnnl::engine(dnnl::engine::kind::cpu, 0); });
  return instance;
}

dnnl::memory::data_type dnnl_dtype(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

void dnnl_run(const char* call, const DnnlPrimitive& primitive, std::initializer_list<DnnlArgument> arguments) {
  const std::size_t scratch_nbytes = primitive.scratchpad.get_size();
  const auto scratch = scratch_nbytes == 0 ? nullptr : Storage::allocate(scratch_nbytes, Device::cpu());
  dnnl_call(call, [&] {
    thread_local dnnl::stream stream(dnnl_engine());
    std::unordered_map<int, dnnl::memory> memories;
    for (const DnnlArgument& argument : arguments) {
      if (argument.data == nullptr) continue;
      memories.emplace(argument.name, dnnl::memory(*argument.desc, dnnl_engine(), const_cast<void*>(argument.data)));
    }
    if (scratch != nullptr) {
      memories.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(primitive.scratchpad, dnnl_engine(), scratch->data()));
    }
    primitive.primitive.execute(stream, memories);
    stream.wait();
  });
}

DnnlPrimitive make_dnnl_convolution_forward(DnnlConvolution& convolution) {
  const auto descriptor = forward_hint(convolution);
  DnnlPrimitive made = compile<dnnl::convolution_forward>("convolution_forward", descriptor);
  if (made.defined()) convolution.w = descriptor.weights_desc();
  return made;
}

DnnlPrimitive make_dnnl_convolution_backward_data(DnnlConvolution& convolution) {
  const auto hint = forward_hint(convolution);
  if (!hint) return {};
  const auto descriptor = optional_descriptor<dnnl::convolution_backward_data::primitive_desc>(
      "convolution_backward_data", [&] { return backward_data_descriptor(convolution, hint); });
  DnnlPrimitive made = compile<dnnl::convolution_backward_data>("convolution_backward_data", descriptor);
  if (made.defined()) convolution.w = descriptor.weights_desc();
  return made;
}

DnnlPrimitive make_dnnl_convolution_backward_weight(DnnlConvolution& convolution) {
  const auto hint = forward_hint(convolution);
  if (!hint) return {};
  const auto descriptor = optional_descriptor<dnnl::convolution_backward_weights::primitive_desc>(
      "convolution_backward_weights", [&] { return backward_weight_descriptor(convolution, hint); });
  DnnlPrimitive made = compile<dnnl::convolution_backward_weights>("convolution_backward_weights", descriptor);
  if (made.defined()) convolution.w = descriptor.diff_weights_desc();
  return made;
}

DnnlPrimitive make_dnnl_matmul(const dnnl::memory::desc& a, const dnnl::memory::desc& b, const dnnl::memory::desc& bias,
                               const dnnl::memory::desc& c, bool accumulate) {
  const auto descriptor = optional_descriptor<dnnl::matmul::primitive_desc>(
      "matmul", [&] { return matmul_descriptor(a, b, bias, c, user_scratchpad(accumulate)); });
  return compile<dnnl::matmul>("matmul", descriptor);
}

DnnlPrimitive make_dnnl_reorder(const dnnl::memory::desc& source, const dnnl::memory::desc& destination,
                                bool accumulate) {
  const auto descriptor = optional_descriptor<dnnl::reorder::primitive_desc>("reorder", [&] {
    return dnnl::reorder::primitive_desc(dnnl_engine(), source, dnnl_engine(), destination, user_scratchpad(accumulate),
                                         true);
  });
  return compile<dnnl::reorder>("reorder", descriptor);
}

}  // namespace heddle::cpu
