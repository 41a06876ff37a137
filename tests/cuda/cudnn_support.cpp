// Asks the real cuDNN, which needs no GPU for it, whether it has an engine for every graph that the models need on the
// GPUs that people have. Graphs are built by the engine's own builders. Run-time compiled plans cannot be finished
// without a driver, so an engine configuration is the answer, not a plan.
//
// usage: test_cudnn_support FILE [PLANS...]     FILE keeps answers by version, GPU and graph, so that a second run is
// quick. PLANS are files of plans that runs of the program left (kernels/cuda/cudnn_plan_cache.h): then the graphs in
// them are asked for, in the place of a list made by hand.
// Exit code: 0 all have one; 1 some have none, which are printed.
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "kernels/cuda/cudnn_builders.h"

using namespace heddle;
using namespace heddle::cuda;

namespace {

struct Gpu {
  const char* name;
  int capability;
  int multiprocessors;
  int shared_nbytes;  // most that a block may have
  long long memory_nbytes;
  int l2_nbytes;
};
constexpr Gpu kGpus[] = {{"NVIDIA A100", 800, 108, 166912, 85'000'000'000, 41943040},
                         {"NVIDIA H200", 900, 132, 232448, 150'000'000'000, 62914560},
                         {"NVIDIA B200", 1000, 148, 232448, 190'000'000'000, 132644864}};

// As cuDNN itself writes the properties of a device.
CudnnDescriptor device_properties(const Gpu& gpu) {
  std::ostringstream json;
  json << R"({"deviceName":")" << gpu.name << R"(","cudaDeviceId":0,"deviceVer":)" << gpu.capability
       << R"(,"multiProcessorCount":)" << gpu.multiprocessors << R"(,"driverVer":13000,"maxSharedMemoryPerBlockOptin":)"
       << gpu.shared_nbytes << R"(,"totalGlobalMem":)" << gpu.memory_nbytes << R"(,"l2CacheSize":)" << gpu.l2_nbytes
       << R"(,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
       << R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
       << R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"pciDeviceId":0,"maxCtasPerSM":32,)"
       << R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1})";
  const std::string text = json.str();
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(text.size() + 1),
                 text.c_str());
  properties.finalize();
  return properties;
}

struct Wanted {
  std::string name;
  GraphKey key;
};

// The distinct graphs of all models, in f32 and bf16; batch 256.
class Graphs {
 public:
  struct Conv {
    int in_channels, out_channels, kernel_size, stride, padding, image_size;
    bool first = false;   // its input needs no gradient
    bool forked = false;  // its input has another consumer: the data gradient adds
  };

  void convolution(const char* model, const Conv& c) {
    const int out = (c.image_size + 2 * c.padding - c.kernel_size) / c.stride + 1;
    const ConvGeometry g{.batch = 256,
                         .in_h = c.image_size,
                         .in_w = c.image_size,
                         .in_c = c.in_channels,
                         .out_h = out,
                         .out_w = out,
                         .out_c = c.out_channels,
                         .kernel_h = c.kernel_size,
                         .kernel_w = c.kernel_size,
                         .stride_h = c.stride,
                         .stride_w = c.stride,
                         .padding_h = c.padding,
                         .padding_w = c.padding,
                         .dilation_h = 1,
                         .dilation_w = 1,
                         .groups = 1,
                         .group_in_c = c.in_channels,
                         .group_out_c = c.out_channels};
    const std::string name = join_text(model, " conv ", c.in_channels, "->", c.out_channels, " ", c.kernel_size, "x",
                                       c.kernel_size, " stride ", c.stride, " at ", c.image_size);
    add(name + ": forward", GraphKind::conv_forward, graph_flag::kBias, g);
    add(name + ": forward with ReLU", GraphKind::conv_forward, graph_flag::kBias | graph_flag::kRelu, g);
    add(name + ": weight gradient", GraphKind::conv_backward_weight, 0, g);
    add(name + ": weight gradient, added", GraphKind::conv_backward_weight, graph_flag::kAdd, g);
    if (!c.first) add(name + ": data gradient", GraphKind::conv_backward_data, 0, g);
    if (c.forked) add(name + ": data gradient, added", GraphKind::conv_backward_data, graph_flag::kAdd, g);
  }

  void batch_norm(const char* model, int channels, int image_size) {
    using namespace graph_flag;
    const ConvGeometry g = window(channels, image_size, image_size, 1, 1, 0);
    const std::string name = join_text(model, " batch norm ", channels, " at ", image_size);
    add(name + ": ReLU, mask", GraphKind::norm_forward, kRelu | kMask, g);
    add(name + ": addend, ReLU, mask", GraphKind::norm_forward, kAdd | kRelu | kMask, g);
    add(name + ": inference, ReLU", GraphKind::norm_inference, kRelu, g);
    add(name + ": inference, addend, ReLU", GraphKind::norm_inference, kAdd | kRelu, g);
    add(name + ": gradient", GraphKind::norm_backward, kMask, g);
    add(name + ": gradient, also of the addend", GraphKind::norm_backward, kMask | kKeepMasked, g);
  }

  void max_pool(const char* model, int channels, int image_size, int out_size) {
    const ConvGeometry g = window(channels, image_size, out_size, 3, 2, 1);
    add(join_text(model, " max pooling"), GraphKind::max_pool_forward, graph_flag::kIndex, g);
    add(join_text(model, " max pooling, gradient"), GraphKind::max_pool_backward, 0, g);
  }

  // The graphs in a file of plans: each line begins with the key's bytes in hexadecimal, the graph's first.
  void recorded(const std::string& path) {
    std::ifstream file(path);
    HEDDLE_CHECK(file, "cannot read ", path);
    const std::size_t before = all_.size();
    for (std::string line; std::getline(file, line);) {
      const std::string text = line.substr(0, line.find(' '));
      if (text.size() < 2 * sizeof(GraphKey) || text.find_first_not_of("0123456789abcdef") != std::string::npos)
        continue;
      GraphKey key{};
      for (std::size_t i = 0; i < sizeof key; ++i) {
        reinterpret_cast<unsigned char*>(&key)[i] =
            static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
      }
      const ConvGeometry& g = key.geometry;
      add_once(join_text(path, ": kind ", static_cast<int>(key.kind), ", flags ", key.flags, ", ", g.batch,
                         " images of ", g.in_h, "x", g.in_w, "x", g.in_c, " -> ", g.out_c, ", window ", g.kernel_h, "x",
                         g.kernel_w, key.bf16 != 0 ? ", bf16" : ", f32"),
               key);
    }
    HEDDLE_CHECK(all_.size() > before || before > 0, path, " holds no graph");
  }

  const std::vector<Wanted>& all() const noexcept { return all_; }

 private:
  static ConvGeometry window(int channels, int in_size, int out_size, int kernel_size, int stride, int padding) {
    return {.batch = 256,
            .in_h = in_size,
            .in_w = in_size,
            .in_c = channels,
            .out_h = out_size,
            .out_w = out_size,
            .out_c = channels,
            .kernel_h = kernel_size,
            .kernel_w = kernel_size,
            .stride_h = stride,
            .stride_w = stride,
            .padding_h = padding,
            .padding_w = padding,
            .dilation_h = 1,
            .dilation_w = 1,
            .groups = 1,
            .group_in_c = channels,
            .group_out_c = channels};
  }
  void add(const std::string& name, GraphKind kind, std::int32_t flags, const ConvGeometry& g) {
    for (const bool bf16 : {false, true}) {
      add_once(name + (bf16 ? ", bf16" : ", f32"), {.kind = kind, .bf16 = bf16 ? 1 : 0, .flags = flags, .geometry = g});
    }
  }
  void add_once(const std::string& name, const GraphKey& key) {
    const std::string bytes(reinterpret_cast<const char*>(&key), sizeof key);
    if (seen_.insert(bytes).second) all_.push_back({name, key});
  }

  std::set<std::string> seen_;
  std::vector<Wanted> all_;
};

// Four stages of two blocks; sizes: of the images in each stage.
void residual_stages(Graphs& graphs, const char* model, const int (&sizes)[4]) {
  for (int stage = 0; stage < 4; ++stage) {
    const int channels = 64 << stage, size = sizes[stage];
    if (stage > 0) {
      graphs.convolution(model, {channels / 2, channels, 3, 2, 1, sizes[stage - 1]});
      graphs.convolution(model, {channels / 2, channels, 1, 2, 0, sizes[stage - 1], false, true});
    }
    graphs.convolution(model, {channels, channels, 3, 1, 1, size, false, true});
    graphs.batch_norm(model, channels, size);
  }
}

Graphs model_graphs() {
  Graphs graphs;
  graphs.convolution("lenet", {1, 6, 5, 1, 0, 28, true});
  graphs.convolution("lenet", {6, 16, 5, 1, 0, 12});
  graphs.convolution("lenet-d2l", {1, 20, 3, 1, 0, 28, true});
  graphs.convolution("lenet-d2l", {20, 50, 5, 1, 0, 13});
  graphs.convolution("resnet18", {1, 64, 7, 2, 3, 28, true});
  graphs.batch_norm("resnet18", 64, 14);
  graphs.max_pool("resnet18", 64, 14, 7);
  residual_stages(graphs, "resnet18", {7, 4, 2, 1});
  graphs.convolution("resnet18-cifar", {1, 64, 3, 1, 1, 28, true});
  residual_stages(graphs, "resnet18-cifar", {28, 14, 7, 4});
  return graphs;
}

// Engine configurations under each kind of settings.
struct Answer {
  int exact = 0, tf32 = 0, deterministic = 0;  // the last: exact too
};

Answer ask(const GraphKey& key, const CudnnDescriptor& properties) {
  Answer answer;
  try {
    const OperationGraph graph = build_operation_graph(key, nullptr);
    for (const bool fallback : {false, true}) {
      for (const EngineCandidate& candidate : engine_candidates(graph, fallback, &properties)) {
        answer.exact += is_allowed(candidate, key, false, false) ? 1 : 0;
        answer.tf32 += is_allowed(candidate, key, true, false) ? 1 : 0;
        answer.deterministic += is_allowed(candidate, key, false, true) ? 1 : 0;
      }
    }
  } catch (const NotSupported&) {
    // cuDNN refuses the graph: no configuration.
  }
  return answer;
}

std::string question(const Gpu& gpu, const GraphKey& key) {
  std::ostringstream text;
  text << cudnnGetVersion() << "/" << gpu.capability << "/" << std::hex;
  for (std::size_t i = 0; i < sizeof key; i += 4) {
    text << *reinterpret_cast<const std::uint32_t*>(reinterpret_cast<const char*>(&key) + i) << ".";
  }
  return text.str();
}

std::map<std::string, Answer> read_answers(const char* path) {
  std::map<std::string, Answer> answers;
  std::ifstream file(path);
  std::string key;
  Answer answer;
  while (file >> key >> answer.exact >> answer.tf32 >> answer.deterministic) answers[key] = answer;
  return answers;
}

int run(const char* path, const std::vector<std::string>& plan_files) {
  std::map<std::string, Answer> answers = read_answers(path);
  std::ofstream file(path, std::ios::app);
  Graphs graphs;
  for (const std::string& plans : plan_files) graphs.recorded(plans);
  if (plan_files.empty()) graphs = model_graphs();
  int asked = 0, missing = 0;
  for (const Gpu& gpu : kGpus) {
    const CudnnDescriptor properties = device_properties(gpu);
    for (const Wanted& wanted : graphs.all()) {
      const std::string key = question(gpu, wanted.key);
      auto found = answers.find(key);
      if (found == answers.end()) {
        found = answers.emplace(key, ask(wanted.key, properties)).first;
        const Answer& answer = found->second;
        file << key << " " << answer.exact << " " << answer.tf32 << " " << answer.deterministic << "\n" << std::flush;
        ++asked;
      }
      const Answer& answer = found->second;
      if (answer.exact > 0 && answer.tf32 > 0 && answer.deterministic > 0) continue;
      ++missing;
      std::printf("%s: %s: %d engine configurations, %d with TF32, %d deterministic\n", gpu.name, wanted.name.c_str(),
                  answer.exact, answer.tf32, answer.deterministic);
    }
  }
  std::printf("cuDNN %zu: %zu graphs on %zu GPUs, %d asked now, %d without an engine\n", cudnnGetVersion(),
              graphs.all().size(), std::size(kGpus), asked, missing);
  return missing == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("usage: %s FILE [PLANS...]\n", argv[0]);
    return 2;
  }
  try {
    return run(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
