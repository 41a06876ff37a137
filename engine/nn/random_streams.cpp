#include "engine/nn/random_streams.h"

namespace heddle::nn {

RandomStreams::RandomStreams(Module& model, const std::int64_t* counter, int rank) {
  HEDDLE_CHECK(rank >= 0 && rank < (1 << 23), "RandomStreams: rank ", rank);
  first_ = static_cast<std::uint64_t>(rank) << 40;
  for (const auto& [name, stream] : model.named_random_streams()) {
    stream->counter = counter;
    streams_.push_back(stream);
  }
}

RandomStreams::~RandomStreams() {
  for (RandomStream* const stream : streams_) stream->counter = nullptr;
}

void RandomStreams::begin_step() {
  for (RandomStream* const stream : streams_) stream->offset = first_;
}

}  // namespace heddle::nn
