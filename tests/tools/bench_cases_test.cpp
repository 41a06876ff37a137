// The rows of `heddle bench`: what they say a call moves and computes, and that every kernel is right on tiny sizes.
#include "engine/device/cuda_plugin.h"
#include "engine/nn/parameter_buffer.h"
#include "models/model_list.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tools/bench/model_ops.h"
#include "tools/bench/runner.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

Case case_of(const std::string& op, const std::string& sizes, DType dtype = DType::f32) {
  const OpRow* const row = find_op(op);
  REQUIRE(row != nullptr);
  return row->make(row->sizes.with(sizes, op), dtype);
}

OpResult check(const std::string& op, const std::string& sizes, RunnerOptions options = {}) {
  const OpRow* const row = find_op(op);
  REQUIRE(row != nullptr);
  options.repeats = 0;
  return Runner(backend_for(Device::cpu()), options, {}).run({row, row->sizes.with(sizes, op)});
}

// The CPU, and the first GPU where there is one, real or simulated.
std::vector<Device> devices() {
  std::vector<Device> all{Device::cpu()};
  if (load_cuda_plugin()) all.push_back(Device::cuda(0));
  return all;
}

// The row's own sizes, made small and odd.
Sizes tiny(const OpRow& row) {
  if (row.name == "gather_images") return row.sizes.with("images=20 n=7 h=5 w=3 flip=1 crop=1", row.name);
  if (row.name.ends_with("_update")) return row.sizes.with("n=52", row.name);
  auto values = row.sizes.values();
  for (auto& [name, value] : values) value = value > 16 ? value % 13 + 5 : value;
  return Sizes(values);
}

const ModelOp& find(const std::vector<ModelOp>& ops, const std::string& op, const std::string& part = "") {
  for (const ModelOp& candidate : ops) {
    if (candidate.op == op && candidate.sizes.find(part) != std::string::npos) return candidate;
  }
  FAIL("no " << op << " with " << part);
  return ops.front();
}

}  // namespace

TEST_CASE("operations and bytes are those of the definition") {
  // 2 images, 3x3 output pixels, 4 channels, 27 products each.
  const std::string conv = "n=2 h=5 w=5 c=3 o=4 k=3 padding=0";
  CHECK(case_of("conv2d_forward", conv).flops == 2 * 2 * 9 * 4 * 27);
  CHECK(nbytes_of(case_of("conv2d_forward", conv)) == 4 * (2 * 25 * 3 + 4 * 27 + 4 + 2 * 9 * 4));
  CHECK(nbytes_of(case_of("conv2d_forward", conv + " bias=0", DType::bf16)) == 2 * (150 + 108 + 72));
  CHECK(case_of("conv2d_backward_data", conv).flops == 3888);
  CHECK(nbytes_of(case_of("conv2d_backward_data", conv + " mask=1")) == 4 * (72 + 108 + 150 + 150));
  CHECK(nbytes_of(case_of("conv2d_backward_weight", conv)) == 4 * (150 + 72 + 108 + 4));
  CHECK(case_of("conv2d_forward", "n=1 h=4 w=4 c=4 o=4 k=1 padding=0 groups=2").flops == 2 * 16 * 4 * 2);
  // Pooled to one value a channel; a byte of it says where the gradient goes.
  const std::string pooled = "n=2 h=5 w=5 c=3 o=4 k=3";
  CHECK(case_of("conv2d_pool_forward", pooled).flops == 3888);
  CHECK(nbytes_of(case_of("conv2d_pool_forward", pooled)) == 4 * (150 + 108 + 4) + 2 * 4 * 5);
  CHECK(nbytes_of(case_of("conv2d_pool_backward_data", pooled + " mask=1")) == 4 * (108 + 150 + 150) + 2 * 4 * 5);
  CHECK(nbytes_of(case_of("conv2d_pool_backward_weight", pooled)) == 4 * (150 + 108 + 4) + 2 * 4 * 5);
  CHECK(case_of("linear_forward", "n=3 in=5 out=7").flops == 210);
  CHECK(nbytes_of(case_of("linear_backward_weight", "n=3 in=5 out=7")) == 4 * (15 + 21 + 35 + 7));
  CHECK(case_of("matmul", "batch=2 m=3 n=4 k=5").flops == 240);
  // A copy reads and writes; what is updated in place is read and written, too.
  CHECK(nbytes_of(case_of("copy", "n=1000")) == 8000);
  CHECK(nbytes_of(case_of("axpy", "n=1000")) == 12000);
  CHECK(nbytes_of(case_of("gt", "n=1000")) == 9000);
  CHECK(nbytes_of(case_of("sgd_update", "n=1000 momentum=1")) == 4 * (5000 + 8));
  CHECK(nbytes_of(case_of("adam_update", "n=1000")) == 4 * (7000 + 8));
  CHECK(nbytes_of(case_of("max_pool2d_forward", "n=1 h=4 w=4 c=3 k=2")) == 4 * 48 + 12 * (4 + 1));
  CHECK(nbytes_of(case_of("max_pool2d_backward", "n=1 h=4 w=4 c=3 k=2 relu=0")) == 4 * 48 + 12 * (4 + 1));
  // Only what is chosen moves.
  CHECK(nbytes_of(case_of("gather_images", "images=50 n=2 h=2 w=2 c=1")) == 2 * (4 * 5 + 13));
  CHECK(nbytes_of(case_of("index_select", "rows=100 columns=8 n=3")) == 3 * (2 * 8 * 4 + 8));
}

TEST_CASE("every op is right on small sizes, on every device, kind of kernel and dtype") {
  for (const Device device : devices()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Runner runner(backend_for(device), {.dtype = dtype, .repeats = 0}, {});
      for (const OpRow& row : op_rows()) {
        INFO(device << " " << row.name << " " << tiny(row).text() << " " << name_of(dtype));
        const OpResult result = runner.run({&row, tiny(row)});
        CHECK_FALSE(row.summary.empty());
        if (dtype == DType::bf16 && !result.not_offered.empty()) continue;
        CHECK(result.not_offered == "");
        REQUIRE_FALSE(result.kernels.empty());
        for (const KernelResult& kernel : result.kernels) {
          INFO(name_of(kernel.source) << " " << kernel.kernel);
          CHECK(kernel.check.problem == "");
          CHECK(kernel.check.ok);
          CHECK(kernel.check.error <= kernel.check.tolerance);
          CHECK_FALSE(kernel.warm.has_value());
        }
      }
    }
  }
}

TEST_CASE("flags of the rows lead to right calls, too") {
  for (const auto& [op, sizes] :
       {std::pair{"conv2d_backward_data", "n=3 h=6 w=6 c=4 o=5 mask=1"},
        std::pair{"conv2d_forward", "n=2 h=6 w=6 c=4 o=6 groups=2 bias=0 relu=0"},
        std::pair{"conv2d_forward", "n=2 h=9 w=9 c=4 o=6 dilation=2 stride=2 padding=2"},
        std::pair{"conv2d_backward_weight", "n=2 h=6 w=6 c=4 o=6 groups=2 bias=0"},
        std::pair{"linear_backward_data", "n=5 in=7 out=3 mask=1"},
        std::pair{"linear_backward_weight", "n=5 in=7 out=3 bias=0"},
        std::pair{"matmul", "batch=3 m=4 n=5 k=6 transpose_a=1"},
        std::pair{"matmul", "m=4 n=5 k=6 transpose_a=1 transpose_b=1"},
        std::pair{"conv2d_pool_forward", "n=16 h=8 w=7 c=3 o=5 k=3 stride=2 padding=1 average=1"},
        std::pair{"conv2d_pool_backward_data", "n=16 h=8 w=7 c=3 o=5 k=3 padding=1 average=1 mask=1"},
        std::pair{"conv2d_pool_backward_data", "n=16 h=8 w=7 c=3 o=5 k=2"},
        std::pair{"conv2d_pool_backward_weight", "n=16 h=8 w=7 c=3 o=5 k=3 average=1 alone=0"},
        std::pair{"conv2d_pool_backward_weight", "n=16 h=8 w=7 c=3 o=5 k=2 alone=0"},
        std::pair{"batch_norm_forward", "n=3 h=5 w=2 c=7 add=1"},
        std::pair{"batch_norm_forward", "n=3 h=5 w=2 c=7 relu=0"},
        std::pair{"batch_norm_backward", "n=3 h=5 w=2 c=7 add=1"},
        std::pair{"batch_norm_backward", "n=3 h=5 w=2 c=16 relu=0"},
        std::pair{"batch_norm_inference", "n=3 h=5 w=2 c=7 add=1"},
        std::pair{"max_pool2d_forward", "n=2 h=7 w=7 c=3 k=3 padding=1 relu=0"},
        std::pair{"max_pool2d_backward", "n=2 h=7 w=7 c=3 k=3 padding=1 relu=0"},
        std::pair{"max_pool2d_forward", "n=1 h=20 w=20 c=2 k=16 stride=1"},
        std::pair{"softmax_backward", "n=5 classes=7 log=1"},
        std::pair{"softmax_forward", "n=5 classes=7 log=1"},
        std::pair{"sgd_update", "n=100 momentum=0"},
        std::pair{"sgd_update", "n=100 nesterov=1"},
        std::pair{"adam_update", "n=100 decoupled=1"},
        std::pair{"reduce_mean", "rows=5 columns=70 dim=1"}}) {
    INFO(op << " " << sizes);
    for (const KernelResult& kernel : check(op, sizes).kernels) CHECK(kernel.check.problem == "");
  }
}

TEST_CASE("own and vendor kernels are found where both exist, and what runs by itself is marked") {
  for (const std::string op : {"conv2d_forward", "conv2d_backward_data", "conv2d_backward_weight", "linear_forward"}) {
    const std::string sizes = op == "linear_forward" ? "n=16 in=8 out=8" : "n=16 h=12 w=12 c=6 o=16 k=5 padding=0";
    const OpResult result = check(op, sizes);
    INFO(op);
    REQUIRE(result.kernels.size() == 2);
    CHECK(result.kernels[0].source == KernelSource::own);
    CHECK(result.kernels[1].source == KernelSource::vendor);
    CHECK(result.kernels[0].automatic != result.kernels[1].automatic);
    for (const KernelChoice choice : {KernelChoice::own, KernelChoice::vendor}) {
      const OpResult one = check(op, sizes, {.kernels = choice});
      REQUIRE(one.kernels.size() == 1);
      CHECK((one.kernels[0].source == KernelSource::vendor) == (choice == KernelChoice::vendor));
    }
  }
  // The pass that pools on the fly, against oneDNN and a pooling.
  for (const std::string op : {"conv2d_pool_forward", "conv2d_pool_backward_data", "conv2d_pool_backward_weight"}) {
    const OpResult result = check(op, "n=16 h=12 w=12 c=6 o=16 k=5");
    INFO(op);
    REQUIRE(result.kernels.size() == 2);
    CHECK(result.kernels[0].kernel == "fused");
    CHECK(result.kernels[0].automatic);
    CHECK(result.kernels[1].source == KernelSource::vendor);
  }
  const OpResult relu = check("relu", "n=100");
  REQUIRE(relu.kernels.size() == 1);
  CHECK(relu.kernels[0].automatic);
}

TEST_CASE("a case too large for the reference is compared at both ends") {
  // 315 million multiply-adds by plain loops would take some seconds.
  CHECK(check("linear_forward", "n=300 in=1024 out=1024").checked == "128 of 300");
  CHECK(check("softmax_backward", "n=100 classes=2000").checked == "32 of 100");
  const OpResult weights = check("conv2d_backward_weight", "n=16 h=28 w=28 c=64 o=48");
  CHECK(weights.checked != "all");
  for (const KernelResult& kernel : weights.kernels) CHECK(kernel.check.problem == "");
}

TEST_CASE("sizes are read by name, and wrong ones are refused with what is known") {
  const Sizes sizes{{"n", 4}, {"rows", 7}};
  CHECK(sizes.with("rows=9", "").text() == "n=4 rows=9");
  CHECK(sizes.with(" n=1,  rows=2 ", "").text() == "n=1 rows=2");
  const auto error = [&](const char* text) { return test::message_of<UsageError>([&] { sizes.with(text, "here"); }); };
  CHECK(error("row=1") == "here: unknown size 'row'; expected n, rows; did you mean rows?");
  CHECK(error("n=x").find("n is 'x'") != std::string::npos);
  CHECK(error("n=-1").find("whole number") != std::string::npos);
  CHECK(error("n=9999999999").find("whole number") != std::string::npos);
  CHECK(error("n") == "here: 'n' has no value; write n=N");

  const auto refused = [&](const std::string& op, const std::string& text) {
    return test::message_of<UsageError>([&] { check(op, text); });
  };
  CHECK(refused("conv2d_forward", "h=2 w=2 k=5 padding=0").find("larger than the padded image") != std::string::npos);
  CHECK(refused("conv2d_forward", "groups=5").find("groups must divide") != std::string::npos);
  CHECK(refused("conv2d_forward", "n=0").find("above 0") != std::string::npos);
  CHECK(refused("conv2d_pool_forward", "h=3").find("smaller than the 2x2 window") != std::string::npos);
  CHECK(refused("max_pool2d_forward", "padding=2").find("half of k") != std::string::npos);
  CHECK(refused("sgd_update", "momentum=0 nesterov=1").find("nesterov") != std::string::npos);
  CHECK(refused("relu", "n=1000000000").find("at most") != std::string::npos);
  CHECK(refused("max_pool2d_backward", "n=100000000 h=100 w=100").find("too large") != std::string::npos);
}

TEST_CASE("a model's step has its ops with their sizes") {
  const std::vector<ModelOp> lenet = model_ops("lenet", 256);
  const std::string first = "n=256 h=28 w=28 c=1 o=6 k=5 stride=1 padding=0 average=0";
  const std::string second = "n=256 h=12 w=12 c=6 o=16 k=5 stride=1 padding=0 average=0";
  CHECK(find(lenet, "conv2d_pool_forward", "c=1").sizes == first);
  CHECK(find(lenet, "conv2d_pool_forward", "c=6").sizes == second);
  CHECK(find(lenet, "conv2d_pool_backward_weight", "c=1").sizes == first + " alone=1");
  CHECK(find(lenet, "conv2d_pool_backward_weight", "c=6").sizes == second + " alone=0");
  CHECK(find(lenet, "conv2d_pool_backward_data", "c=6").sizes == second + " mask=0");
  CHECK(find(model_ops("lenet-d2l", 256), "conv2d_pool_backward_data").sizes ==
        "n=256 h=13 w=13 c=20 o=50 k=5 stride=1 padding=0 average=1 mask=0");
  CHECK(find(lenet, "linear_forward", "in=256").sizes == "n=256 in=256 out=120 bias=1 relu=1");
  CHECK(find(lenet, "linear_backward_data", "out=10").sizes == "n=256 in=84 out=10 mask=1");
  // The images need no gradient.
  CHECK(std::count_if(lenet.begin(), lenet.end(),
                      [](const ModelOp& op) { return op.op == "conv2d_pool_backward_data"; }) == 1);

  const std::vector<ModelOp> resnet = model_ops("resnet18", 8);
  CHECK(find(resnet, "conv2d_forward", "c=1 ").sizes == "n=8 h=28 w=28 c=1 o=64 k=7 stride=2 padding=3 bias=1 relu=0");
  CHECK(find(resnet, "conv2d_forward", "h=7 w=7 c=64 o=64").count == 4);
  CHECK(find(resnet, "conv2d_forward", "h=7 w=7 c=64 o=128 k=1 stride=2").count == 1);
  CHECK(find(resnet, "conv2d_forward", "h=1 w=1 c=512 o=512").count == 3);
  CHECK(find(resnet, "batch_norm_forward", "h=14 w=14").sizes == "n=8 h=14 w=14 c=64 relu=1 add=0");
  CHECK(find(resnet, "batch_norm_backward", "c=512 relu=1 add=1").count == 2);
  CHECK(find(resnet, "max_pool2d_forward").sizes == "n=8 h=14 w=14 c=64 k=3 stride=2 padding=1 relu=0");

  int convolutions = 0;
  for (const ModelOp& op : model_ops("resnet18-cifar", 8)) {
    if (op.op == "conv2d_forward") convolutions += op.count;
  }
  CHECK(convolutions == 20);
  // 11,175,818 parameters; the last bias has two floats of padding behind it.
  CHECK(find(model_ops("resnet18-cifar", 8), "sgd_update").sizes == "n=11175820 momentum=0");
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    const auto model = models::make_model(name, {});
    nn::ParameterBuffer buffer(*model);
    CHECK(find(model_ops(name, 8), "sgd_update").sizes == join_text("n=", buffer.data().numel(), " momentum=0"));
  }
  for (const std::string& name : bench_model_names()) {
    for (const ModelOp& op : model_ops(name, 1)) {
      INFO(name << ": " << op.op << " " << op.sizes);
      const OpRow* const row = find_op(op.op);
      REQUIRE(row != nullptr);
      CHECK_NOTHROW(row->sizes.with(op.sizes, op.op));
    }
  }
  CHECK(test::message_of<UsageError>([] { model_ops("lenet5", 1); }).find("did you mean lenet?") != std::string::npos);
}

}  // namespace heddle::tools::bench
