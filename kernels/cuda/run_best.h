// The choice among the implementations of a primitive, rows of a list with the best first. Used by the families that
// have such lists.
#pragma once

#include <exception>

#include "engine/backend/kernel_choice.h"
#include "engine/core/error.h"

namespace heddle::cuda {

// Runs the best row of the kind that kernel_choice() prefers, or else of the other: of those that fits(row) takes the
// first for which run(row) is true. One that finds no memory for its scratch (it has queued nothing then) makes room
// for the next. The list has to hold a row that takes everything. Throws: OutOfMemory if no row found memory; what run
// throws.
template <class Rows, class Fits, class Run>
void run_best(const Rows& rows, const Fits& fits, const Run& run) {
  const KernelChoice choice = kernel_choice();
  std::exception_ptr out_of_memory;
  for (int round = 0; round < 2; ++round) {
    for (const auto& row : rows) {
      if (!is_tried(row.source, choice, round) || !fits(row)) continue;
      try {
        if (!run(row)) continue;
        note_kernel({row.name, row.source});
        return;
      } catch (const OutOfMemory&) {
        out_of_memory = std::current_exception();
      }
    }
  }
  // A row takes everything, so it can have failed for one reason only.
  std::rethrow_exception(out_of_memory);
}

}  // namespace heddle::cuda
