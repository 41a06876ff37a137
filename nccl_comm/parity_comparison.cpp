#include "nccl_comm/parity_comparison.h"

#include <cmath>
#include <limits>

#include "engine/core/error.h"

namespace heddle::comm {

double norm_of(const double* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

void ParityComparison::compare(const std::string& name, const std::vector<double>& ranks,
                               const std::vector<double>& one, double terms, const std::array<std::string, 2>& who) {
  compare_within({tolerance_}, name, ranks, one, terms, who);
}

void ParityComparison::compare_within(const ParityAllowed& allowed, const std::string& name,
                                      const std::vector<double>& ranks, const std::vector<double>& one, double terms,
                                      const std::array<std::string, 2>& who) {
  std::vector<double> difference(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) difference[i] = ranks[i] - one[i];
  const auto norm = [](const std::vector<double>& x) { return norm_of(x.data(), static_cast<std::int64_t>(x.size())); };
  const double a = norm(ranks), b = norm(one), d = norm(difference);
  // Neither side has a finite step, and the training will say so.
  if (!std::isfinite(a) && !std::isfinite(b)) return;
  const double relative = d == 0 ? 0.0 : std::isfinite(d) ? d / b : std::numeric_limits<double>::infinity();
  const bool fails = !(d <= allowed.of_norm * b + allowed.of_terms * terms);
  if (!fails && !allowed.in_result) return;
  // What fails goes before what does not, then the larger difference.
  const bool failed_before = !problem_.empty();
  if (failed_before != fails ? failed_before : relative <= result_.largest) return;
  result_ = {relative, name};
  if (!fails) return;
  const double bound = allowed.of_norm * b + allowed.of_terms * terms;
  problem_ = join_text(name, " has the norm ", a, " ", who[0], " and ", b, " ", who[1], "; the difference is ");
  problem_ += b > 0 ? join_text(relative, " of that, and ", bound / b, " is allowed")
                    : join_text(d, ", and ", bound, " is allowed");
}

void ParityComparison::fail(const std::string& problem) {
  if (problem_.empty()) problem_ = problem;
}

}  // namespace heddle::comm
