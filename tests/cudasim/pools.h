// Memory pools: what cudaMallocAsync takes memory from. Used by the allocation functions. Everything here needs the
// lock.
#pragma once

#include <vector>

#include "tests/cudasim/cudasim.h"

namespace cudasim {

// Destroys the pools of a device and makes its default one anew.
void drop_pools_of(int device);
// Adds pools that the program made and has not destroyed.
void add_pool_leaks(std::vector<Leak>& found);

}  // namespace cudasim
