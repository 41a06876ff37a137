// Runs one case: for each kind of kernel that there is, first the comparison with the reference, then the clock. Gives
// numbers; prints nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/kernel_choice.h"
#include "tools/bench/check.h"
#include "tools/bench/limits.h"
#include "tools/bench/op_row.h"
#include "tools/bench/timing.h"

namespace heddle::tools::bench {

// An op with sizes, as often as a model's step has it.
struct Work {
  const OpRow* row = nullptr;
  Sizes sizes;
  int count = 1;
};

// Speed by one timing, against the limits.
struct Speed {
  Timing timing;
  double bytes_per_second = 0;
  double flops_per_second = 0;
  double share = 0;         // bound / median; 0: nothing is known of the limit
  const char* bound = "";   // what the limit is: "memory", "arithmetic" or ""
  bool impossible = false;  // the fastest call is above the limit
};

struct KernelResult {
  std::string kernel;  // the backend's name, "" where it has one implementation
  KernelSource source = KernelSource::own;
  bool automatic = false;  // what runs unless --kernels says otherwise
  CheckResult check;
  std::optional<Speed> warm, cold;  // set if it is right and was timed
};

struct OpResult {
  std::string op, sizes;
  DType dtype = DType::f32;
  int count = 1;
  double nbytes = 0, flops = 0;
  std::string checked;  // how much was compared, see Expectation::extent
  std::vector<KernelResult> kernels;
  std::string not_offered;  // why the device does not do this; then there are no kernels
};

struct RunnerOptions {
  DType dtype = DType::f32;
  KernelChoice kernels = KernelChoice::automatic;  // automatic: every kind that there is
  int repeats = 20;                                // 0: compare only
};

class Runner {
 public:
  // Limits are needed if repeats are not 0. The backend must outlive the runner.
  Runner(Backend& backend, const RunnerOptions& options, const Limits& limits);
  // Throws: UsageError for sizes that do not fit, OutOfMemory, DeviceError.
  OpResult run(const Work& work);

 private:
  struct Candidate {
    KernelChoice choice;
    KernelUsed used;
    bool automatic;
  };
  std::vector<Candidate> find_candidates(const Case& c, Operands& operands);
  KernelUsed call_once(const Case& c, Operands& operands, KernelChoice choice);
  Speed speed_of(const Timing& timing, const OpResult& result, bool from_memory) const;

  Backend& backend_;
  RunnerOptions options_;
  Limits limits_;
  std::unique_ptr<Timer> timer_;  // if calls are timed
};

}  // namespace heddle::tools::bench
