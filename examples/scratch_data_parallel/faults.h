// Faults that this example can be asked for (--fault), because each is easily made, nothing crashes, and the loss falls
// all the same. docs/seed-faults.md has what they do in numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <heddle/tensor/tensor.h>

enum class Fault {
  none,
  assign,      // allreduce() assigns the sum to the elements of its list, not into the gradients
  copy,        // allreduce() gets copies of the gradients
  first_only,  // only device 0's parameters are updated
  mean_twice,  // the loss is a mean over the shard, and the update divides by the batch once more
  shortcut,    // a residual block whose shortcut keeps the input's shape
};

// The name of each is its enumerator's with a dash. Empty if there is none of this name.
std::optional<Fault> fault_from_name(const std::string& name);
std::string fault_names();

// What allreduce() does to the tensors of its list with the faults `assign` and `copy`.
void allreduce_assigning(std::vector<heddle::Tensor>& data);
void allreduce_copies(std::vector<heddle::Tensor> data);

// Prints what both branches of a residual block give. Returns whether they can be added without a convolution on the
// shortcut.
bool show_shortcut();
