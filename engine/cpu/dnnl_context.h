// What every use of oneDNN shares: engine and stream, errors, thread count, scratch memory, and the calls that differ
// between oneDNN 2.6 and 3.x. Only conv2d_dnnl and matmul_dnnl include it; all else of the engine knows no oneDNN.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "engine/core/dtype.h"
#include "engine/tensor/storage.h"

namespace heddle::cpu {

// "oneDNN 2.6.3, AVX-512 with bfloat16": the linked library and the instruction set that it uses.
std::string dnnl_description();
// Names of the implementations that oneDNN chose so far in this process, sorted ("brgconv:avx512_core"). For reports,
// and for the test that no slow reference implementation is among them.
std::vector<std::string> dnnl_implementations();
// True if oneDNN computes in dtype on this processor (f32 always, bf16 with AVX-512).
bool dnnl_has_dtype(DType dtype);

// While it lives, oneDNN uses the engine's num_threads() on the calling thread (one inside a parallel region); the host
// program's OpenMP settings are put back at the end. oneDNN fixes the thread count when it makes a primitive, so
// making and running one need the same count.
class DnnlThreads {
 public:
  DnnlThreads();
  ~DnnlThreads();
  DnnlThreads(const DnnlThreads&) = delete;
  DnnlThreads& operator=(const DnnlThreads&) = delete;
  int count() const noexcept { return count_; }
  // The count that the constructor would choose.
  static int wanted() noexcept;

 private:
  int count_;
  int previous_count_;
  int previous_dynamic_;
};

[[noreturn]] void throw_dnnl_error(const char* call, const dnnl::error& error);

// Runs f. Throws: DeviceError naming library, call and status where oneDNN reports an error.
template <class F>
auto dnnl_call(const char* call, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    throw_dnnl_error(call, error);
  }
}

const dnnl::engine& dnnl_engine();
dnnl::memory::data_type dnnl_dtype(DType dtype);

// A compiled primitive and the size of the scratch memory that a run of it needs.
struct DnnlPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;

  bool defined() const { return primitive.get(true) != nullptr; }
};

struct DnnlArgument {
  int name;  // DNNL_ARG_..
  const dnnl::memory::desc* desc;
  const void* data;
};

// Runs a primitive on the calling thread's DnnlThreads; blocks. Scratch comes from the caching allocator.
void dnnl_run(const char* call, const DnnlPrimitive& primitive, std::initializer_list<DnnlArgument> arguments);

// One convolution; a zero descriptor as bias means none. Weights may have format_tag::any.
struct DnnlConvolution {
  dnnl::memory::desc x, w, bias, y;
  dnnl::memory::dims strides, dilations, padding_left, padding_right;
};

// The makers below return an undefined primitive when oneDNN offers nothing but its reference loops, and replace the
// descriptor of the weights by the format that the implementation wants.
DnnlPrimitive make_dnnl_convolution_forward(DnnlConvolution& convolution);
DnnlPrimitive make_dnnl_convolution_backward_data(DnnlConvolution& convolution);
DnnlPrimitive make_dnnl_convolution_backward_weight(DnnlConvolution& convolution);
// c = a b (+ bias), or c += with accumulate.
DnnlPrimitive make_dnnl_matmul(const dnnl::memory::desc& a, const dnnl::memory::desc& b, const dnnl::memory::desc& bias,
                               const dnnl::memory::desc& c, bool accumulate);
// destination = source, or destination += source.
DnnlPrimitive make_dnnl_reorder(const dnnl::memory::desc& source, const dnnl::memory::desc& destination,
                                bool accumulate);

}  // namespace heddle::cpu
