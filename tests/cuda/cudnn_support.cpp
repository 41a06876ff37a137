// Asks the real cuDNN, which needs no GPU for it, whether it has an engine for each graph that the engine builds, on
// the GPUs that people have. The graphs are in files of plans, which runs on the simulated CUDA leave
// (kernels/cuda/cudnn_plan_cache.h, record_graphs.cpp); all of them are asked for in f32 and in bf16. Graphs are built
// by the engine's own builders. Run-time compiled plans cannot be finished without a driver, so an engine configuration
// is the answer, not a plan. Which ones there are differs between GPUs, so each is asked about each graph.
//
// usage: test_cudnn_support FILE PLANS...     FILE keeps answers by version, GPU and graph, so that a second run is
// quick Exit code: 0 all have one; 1 some have none, which are printed.
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

// The distinct graphs of some files.
class Graphs {
 public:
  // Each line of a file of plans begins with the key's bytes in hexadecimal, the graph's first.
  void add_file(const std::string& path) {
    std::ifstream file(path);
    HEDDLE_CHECK(file, "cannot read ", path);
    std::size_t found = 0;
    for (std::string line; std::getline(file, line);) {
      const std::string text = line.substr(0, line.find(' '));
      if (text.size() < 2 * sizeof(GraphKey) || text.find_first_not_of("0123456789abcdef") != std::string::npos)
        continue;
      GraphKey key{};
      for (std::size_t i = 0; i < sizeof key; ++i) {
        reinterpret_cast<unsigned char*>(&key)[i] =
            static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
      }
      ++found;
      // What a graph looks like does not depend on the type.
      for (key.bf16 = 0; key.bf16 < 2; ++key.bf16) add(key);
    }
    HEDDLE_CHECK(found > 0, path, " holds no graph");
  }

  const std::vector<Wanted>& all() const noexcept { return all_; }

 private:
  void add(const GraphKey& key) {
    const std::string bytes(reinterpret_cast<const char*>(&key), sizeof key);
    if (!seen_.insert(bytes).second) return;
    const ConvGeometry& g = key.geometry;
    all_.push_back({join_text("kind ", static_cast<int>(key.kind), ", flags ", key.flags, ", ", g.batch, " images of ",
                              g.in_h, "x", g.in_w, "x", g.in_c, " -> ", g.out_c, ", window ", g.kernel_h, "x",
                              g.kernel_w, key.bf16 != 0 ? ", bf16" : ", f32"),
                    key});
  }

  std::set<std::string> seen_;
  std::vector<Wanted> all_;
};

// Engine configurations under each kind of settings: none only if there is none, else some or all.
struct Answer {
  int exact = 0, tf32 = 0, deterministic = 0;  // the last: exact too
  bool is_whole() const noexcept { return exact > 0 && tf32 > 0 && deterministic > 0; }
};

Answer ask(const GraphKey& key, const CudnnDescriptor& properties) {
  Answer answer;
  try {
    const OperationGraph graph = build_operation_graph(key, nullptr);
    for (const bool fallback : {false, true}) {
      // The second list is what takes long, and is for graphs that the first one leaves without.
      if (answer.is_whole()) break;
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
  for (const std::string& plans : plan_files) graphs.add_file(plans);
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
      if (answer.is_whole()) continue;
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
  if (argc < 3) {
    std::printf("usage: %s FILE PLANS...\n", argv[0]);
    return 2;
  }
  try {
    return run(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
