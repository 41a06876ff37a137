// Buffers of model replicas that each rank moved by its own share, such as running statistics, made one. Used by
// trainers before they evaluate or save.
#pragma once

#include <heddle/comm/communicator.h>
#include <heddle/nn/module.h>

namespace heddle::comm {

// Every f32 buffer becomes its mean over the ranks, the same bits on all of them; other dtypes become rank 0's. One
// exchange and one broadcast for the f32 ones together, which leave to the bit what is equal on all ranks already. All
// ranks call it at the same place. Throws: CommError.
void average_buffers(nn::Module& model, Communicator& communicator);

}  // namespace heddle::comm
