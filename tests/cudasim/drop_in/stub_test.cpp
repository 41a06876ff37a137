// Host code that nvcc made, on the simulated CUDA: how it registers kernels and starts them.
#include <numeric>
#include <vector>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/drop_in/stubs.h"
#include "tests/cudasim/test/device_array.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace cudasim::test {

FreshMachine::FreshMachine() {
  reset();
  set_stream_order({StreamOrder::lazy});
  set_thread_order(ThreadOrder::forward);
}
FreshMachine::~FreshMachine() { reset(); }

namespace {

template <class T>
std::vector<T> ramp(int n) {
  std::vector<T> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

}  // namespace

TEST_CASE("kernels that nvcc compiled run with the arguments that their stubs pack") {
  const FreshMachine fresh;
  DeviceArray<int> whole(ramp<int>(1000));
  shift(whole.data(), 5, 1000, 128);
  CHECK(whole.values()[999] == 1004);
  DeviceArray<float> real(ramp<float>(1000));
  shift(real.data(), 0.5f, 1000, 64);
  CHECK(real.values()[999] == 999.5f);
  add_constants(real.data());
  CHECK(real.values()[3] == 43.5f);
  CHECK(real.values()[4] == 4.5f);
}

TEST_CASE("device pointers inside a struct reach a kernel that nvcc compiled, on the stream that was named") {
  const FreshMachine fresh;
  DeviceArray<float> first(ramp<float>(100)), second(ramp<float>(100));
  const NonBlockingStream stream;
  set_tracing(true);
  scale_rows({{first.data(), second.data()}, 2}, 100, 3.0f, stream);
  REQUIRE(trace().size() == 1);
  CHECK(trace()[0].kind == OpKind::kernel);
  CHECK(trace()[0].name.find("scale_kernel") != std::string::npos);
  CHECK(trace()[0].stream != 0);
  require_ok(cudaStreamSynchronize(stream));
  CHECK(first.values()[99] == 297.0f);
  CHECK(second.values()[1] == 3.0f);
}

TEST_CASE("a kernel that nvcc compiled gets the dynamic shared memory of its launch, and no more") {
  const FreshMachine fresh;
  DeviceArray<float> x(ramp<float>(256));
  reverse(x.data(), 256, 256 * sizeof(float));
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(x.values()[0] == 255.0f);
  CHECK(x.values()[255] == 0.0f);
  reverse(x.data(), 256, 64 << 10);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("a refused launch with <<<...>>> is told by cudaGetLastError, once") {
  const FreshMachine fresh;
  DeviceArray<int> x(ramp<int>(10));
  shift(x.data(), 1, 10, 2048);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
  fail_nth("cudaLaunchKernel", 1, cudaErrorLaunchOutOfResources);
  shift(x.data(), 1, 10, 32);
  CHECK(cudaGetLastError() == cudaErrorLaunchOutOfResources);
  CHECK(x.values() == ramp<int>(10));
}

// The file is compiled for sm_90, and has PTX for it.
TEST_CASE("kernels start only on GPUs for which the program holds code") {
  const FreshMachine fresh;
  DeviceArray<int> x(ramp<int>(10));
  for (const int capability : {75, 80, 89}) {
    INFO(capability);
    set_capability(capability);
    CHECK(ask_for_kernel() == cudaErrorNoKernelImageForDevice);
    cudaGetLastError();
    shift(x.data(), 1, 10, 32);
    CHECK(cudaGetLastError() == cudaErrorNoKernelImageForDevice);
  }
  CHECK(x.values() == ramp<int>(10));
  for (const int capability : {90, 100, 120}) {
    INFO(capability);
    set_capability(capability);
    CHECK(ask_for_kernel() == cudaSuccess);
    shift(x.data(), 1, 10, 32);
    CHECK(cudaGetLastError() == cudaSuccess);
  }
  CHECK(x.values()[0] == 3);
}

TEST_CASE("a kernel without host code is named when the program starts") {
  const auto result = heddle::test::run_process(
      "/proc/self/exe", {.arguments = {"--list-tests"}, .environment = {{"CUDASIM_KERNELS", ""}}});
  INFO(result.err);
  CHECK(result.exit_code != 0);
  CHECK(result.err.find("cudasim::test::") != std::string::npos);
  CHECK(result.err.find("CUDASIM_KERNELS") != std::string::npos);
}

}  // namespace cudasim::test
