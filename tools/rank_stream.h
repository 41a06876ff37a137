// The stream that a rank of a training works on. Used by training jobs; knows nothing of what runs on it.
#pragma once

#include <optional>

#include "engine/comm/communicator.h"
#include "engine/device/device_runtime.h"

namespace heddle::tools {

// A stream of its own for each rank on a GPU, since several may share one: what one rank records must not hold what
// another queues. While it lives it is the calling thread's current stream. Nothing on a CPU and without ranks.
class RankStream {
 public:
  RankStream(Device device, const comm::Communicator* communicator) {
    if (device.is_cpu() || communicator == nullptr) return;
    stream_ = runtime_for(device).create_stream();
    guard_.emplace(*stream_);
  }
  ~RankStream() {
    guard_.reset();
    if (stream_) runtime_for(stream_->device).destroy_stream(*stream_);
  }
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

 private:
  std::optional<Stream> stream_;
  std::optional<StreamGuard> guard_;
};

}  // namespace heddle::tools
