#include "tools/bench/runner.h"

#include <algorithm>

#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

// A cold call costs filling the caches.
constexpr int kMaxColdRepeats = 10;

}  // namespace

Runner::Runner(Backend& backend, const RunnerOptions& options, const Limits& limits)
    : backend_(backend),
      options_(options),
      limits_(limits),
      timer_(options.repeats > 0 ? std::make_unique<Timer>(backend.device(), limits.cache_nbytes) : nullptr) {}

KernelUsed Runner::call_once(const Case& c, Operands& operands, KernelChoice choice) {
  const KernelChoiceGuard guard(choice);
  take_noted_kernel();
  c.call(backend_, operands.inputs(), operands.outputs());
  return take_noted_kernel().value_or(KernelUsed{});
}

// Every implementation that a choice leads to, the own one first.
std::vector<Runner::Candidate> Runner::find_candidates(const Case& c, Operands& operands) {
  if (options_.kernels != KernelChoice::automatic) {
    return {{options_.kernels, call_once(c, operands, options_.kernels), false}};
  }
  const auto same = [](const KernelUsed& a, const KernelUsed& b) { return a.name == b.name && a.source == b.source; };
  const KernelUsed automatic = call_once(c, operands, KernelChoice::automatic);
  std::vector<Candidate> candidates;
  for (const KernelChoice choice : {KernelChoice::own, KernelChoice::vendor, KernelChoice::automatic}) {
    const KernelUsed used = choice == KernelChoice::automatic ? automatic : call_once(c, operands, choice);
    const bool known = std::any_of(candidates.begin(), candidates.end(),
                                   [&](const Candidate& candidate) { return same(candidate.used, used); });
    if (!known) candidates.push_back({choice, used, same(used, automatic)});
  }
  return candidates;
}

Speed Runner::speed_of(const Timing& timing, const OpResult& result, bool from_memory) const {
  const Bound bound = bound_of(result.nbytes, result.flops, limits_, from_memory);
  return {.timing = timing,
          .bytes_per_second = timing.median > 0 ? result.nbytes / timing.median : 0,
          .flops_per_second = timing.median > 0 ? result.flops / timing.median : 0,
          .share = timing.median > 0 ? bound.seconds / timing.median : 0,
          .bound = bound.by,
          .impossible = bound.seconds > timing.min * allowed_excess(limits_)};
}

OpResult Runner::run(const Work& work) {
  const Case c = work.row->make(work.sizes, options_.dtype);
  if (numel_of(c) > static_cast<double>(kMaxNumel)) {
    throw UsageError(join_text(work.row->name, " ", work.sizes.text(), ": ", numel_of(c), " elements in all, at most ",
                               kMaxNumel, " are allowed"));
  }
  OpResult result{.op = work.row->name,
                  .sizes = work.sizes.text(),
                  .dtype = is_floating(c.outputs[0].dtype) ? c.outputs[0].dtype : options_.dtype,
                  .count = work.count,
                  .nbytes = nbytes_of(c),
                  .flops = c.flops};
  Operands operands(c, backend_.device());
  std::vector<Candidate> candidates;
  try {
    candidates = find_candidates(c, operands);
  } catch (const NotSupported& error) {
    result.not_offered = error.what();
    return result;
  }
  const Expectation expectation(c, operands);
  result.checked = expectation.extent();
  for (const Candidate& candidate : candidates) {
    KernelResult kernel{
        .kernel = std::string(candidate.used.name), .source = candidate.used.source, .automatic = candidate.automatic};
    const KernelChoiceGuard guard(candidate.choice);
    const auto call = [&] { c.call(backend_, operands.inputs(), operands.outputs()); };
    operands.reset_outputs();
    call();
    kernel.check = expectation.compare(operands.outputs());
    if (kernel.check.ok && timer_ != nullptr) {
      const bool from_memory = result.nbytes > limits_.cache_nbytes;
      kernel.warm = speed_of(timer_->warm(call, options_.repeats), result, from_memory);
      kernel.cold = speed_of(timer_->cold(call, std::min(options_.repeats, kMaxColdRepeats)), result, true);
    }
    result.kernels.push_back(std::move(kernel));
  }
  return result;
}

}  // namespace heddle::tools::bench
