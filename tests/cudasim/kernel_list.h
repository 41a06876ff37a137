// The kernels that a program can launch, by the address that it launches them with. Kernels that the host's compiler
// compiled have their own address; those of a file that nvcc compiled have that of a stub, and the host's code of the
// kernel is found by its name. Used by the launch functions. Everything here needs the lock.
#pragma once

#include <memory>
#include <string>

#include "tests/cudasim/fat_binary.h"
#include "tests/cudasim/shim/kernel_call.h"

namespace cudasim {

struct Kernel {
  KernelFactory factory = nullptr;
  // What runs.
  const void* code = nullptr;
  std::string name;
  // The code for GPUs in the program's file, which is looked at but not run. nullptr if the host's compiler compiled
  // it.
  std::shared_ptr<const FatBinary> binary;
  // What cudaFuncSetAttribute allowed.
  int max_dynamic_shared = 0;
  int shared_carveout = -1;

  // Whether a GPU like the simulated one would find code for itself.
  bool runs_here() const;
};

// nullptr if there is none.
Kernel* find_kernel(const void* function);
// A stub that nvcc made. Ends the process if no table holds the kernel: see CUDASIM_KERNELS.
void add_stub(const void* stub, const char* mangled, const std::shared_ptr<const FatBinary>& binary);
void remove_stubs(const FatBinary* binary);

}  // namespace cudasim
