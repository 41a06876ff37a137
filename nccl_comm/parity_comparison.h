// How the parity gate compares what the ranks have with what one rank has. Used by parity_gate.cpp and
// batch_norm_replay.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "nccl_comm/parity_gate.h"

namespace heddle::comm {

// Where terms cancel, rounding does not shrink with the sum: differences so small against the terms are its own.
constexpr double kParityRounding = 1e-6;

// What a comparison of two vectors allows of their difference's norm.
struct ParityAllowed {
  double of_norm;                     // times the norm of the reference
  double of_terms = kParityRounding;  // times that of the terms whose rounding is in them
  bool in_result = true;              // else it counts only if it fails
};

// The Euclidean norm of n values.
double norm_of(const double* x, std::int64_t n);

// The worst of several comparisons.
class ParityComparison {
 public:
  // tolerance: of_norm of compare().
  explicit ParityComparison(double tolerance) : tolerance_(tolerance) {}

  double tolerance() const noexcept { return tolerance_; }

  // ranks and one: n values each, of all ranks and of one rank. `terms`: how large the values are whose rounding is in
  // them. `who`: what the norms belong to.
  void compare(const std::string& name, const std::vector<double>& ranks, const std::vector<double>& one, double terms,
               const std::array<std::string, 2>& who);
  void compare_within(const ParityAllowed& allowed, const std::string& name, const std::vector<double>& ranks,
                      const std::vector<double>& one, double terms, const std::array<std::string, 2>& who);
  // Something that is wrong whatever the values are; the first one stays.
  void fail(const std::string& problem);

  // What is wrong; empty if nothing.
  const std::string& problem() const noexcept { return problem_; }
  const ParityResult& result() const noexcept { return result_; }

 private:
  double tolerance_;
  ParityResult result_;
  std::string problem_;
};

}  // namespace heddle::comm
