// The ops of one training step of a model, by formula: what `heddle bench --model NAME` runs. Ops that come with equal
// sizes several times are listed once with their number. Batch normalisation is not among the primitives and is left
// out.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/sizes.h"

namespace heddle::tools::bench {

struct ModelOp {
  std::string op;     // a name of op_rows()
  std::string sizes;  // as --shape takes them
  int count = 1;
};

std::vector<std::string> bench_model_names();
// A step on images of 28x28 in one channel and ten classes, with plain SGD. Throws: UsageError for an unknown name.
std::vector<ModelOp> model_ops(const std::string& model, std::int64_t batch_size);

}  // namespace heddle::tools::bench
