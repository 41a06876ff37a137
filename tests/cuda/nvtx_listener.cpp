// A listener for NVTX in place of a profiler: a library that NVTX loads because NVTX_INJECTION64_PATH names it, and
// that the test links, too. Source of the protocol: the toolkit's nvtx3/nvtxDetail/nvtxTypes.h.
#include "tests/cuda/nvtx_listener.h"

#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <utility>

namespace {

std::mutex mutex;
std::vector<std::string> heard;
thread_local std::vector<std::string> open_ranges;

int push(const char* name) {
  open_ranges.push_back(open_ranges.empty() ? name : open_ranges.back() + "/" + name);
  const std::lock_guard lock(mutex);
  heard.push_back(open_ranges.back());
  return static_cast<int>(open_ranges.size()) - 1;
}

int pop() {
  if (open_ranges.empty()) return -1;
  open_ranges.pop_back();
  return static_cast<int>(open_ranges.size());
}

}  // namespace

std::vector<std::string> take_nvtx_ranges() {
  const std::lock_guard lock(mutex);
  return std::exchange(heard, {});
}

int open_nvtx_ranges() { return static_cast<int>(open_ranges.size()); }

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  if (size <= NVTX_CBID_CORE_RangePop) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
