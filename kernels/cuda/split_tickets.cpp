#include "kernels/cuda/split_tickets.h"

#include <algorithm>

#include "engine/device/device_runtime.h"

namespace heddle::cuda {

SplitTickets::SplitTickets(Device device)
    : memory_(Tensor::empty({static_cast<std::int64_t>(kStreams), kMaxTickets}, DType::i32, device)) {
  const Stream stream = current_stream(device);
  runtime_for(device).fill_async(memory_.mutable_raw_data(), 0, memory_.nbytes(), stream);
  runtime_for(device).synchronize(stream);
}

unsigned* SplitTickets::for_stream(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  const auto known = owners_.begin() + static_cast<std::ptrdiff_t>(std::min(seen_, kStreams));
  auto slot = static_cast<std::size_t>(std::find(owners_.begin(), known, stream) - owners_.begin());
  if (slot == std::min(seen_, kStreams)) {
    slot = seen_++ % kStreams;
    owners_[slot] = stream;
  }
  return static_cast<unsigned*>(memory_.mutable_raw_data()) + slot * static_cast<std::size_t>(kMaxTickets);
}

SplitMemory::SplitMemory(const SplitPlan& plan, Device device, SplitTickets& tickets, cudaStream_t stream) {
  scratch_.plan = plan;
  if (plan.splits <= 1) return;
  partials_ = Tensor::empty({plan.partial_floats}, DType::f32, device);
  scratch_.partials = partials_.mutable_device_data<float>();
  scratch_.tickets = tickets.for_stream(stream);
}

}  // namespace heddle::cuda
