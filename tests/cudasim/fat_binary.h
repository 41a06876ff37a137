// For which GPUs a file that nvcc compiled holds code. The code itself is not looked at.
#pragma once

#include <vector>

namespace cudasim {

struct FatBinary {
  // Compute capabilities, 90 for sm_90: of machine code, and of PTX.
  std::vector<int> cubins;
  std::vector<int> ptx;

  // Machine code runs on GPUs of the same major capability and a minor one that is not less; a driver translates PTX
  // for every GPU that is not older. Source: CUDA C++ Programming Guide, binary and PTX compatibility.
  bool has_code_for(int capability) const;
};

// Reads what nvcc's start-up code hands to __cudaRegisterFatBinary. Ends the process if it is something else.
FatBinary read_fat_binary(const void* wrapper);

}  // namespace cudasim
