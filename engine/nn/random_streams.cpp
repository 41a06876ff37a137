#include "engine/nn/random_streams.h"

namespace heddle::nn {

RandomStreams::RandomStreams(Module& model, const std::int64_t* counter) {
  for (const auto& [name, stream] : model.named_random_streams()) {
    stream->counter = counter;
    streams_.push_back(stream);
  }
}

RandomStreams::~RandomStreams() {
  for (RandomStream* const stream : streams_) stream->counter = nullptr;
}

void RandomStreams::begin_step() {
  for (RandomStream* const stream : streams_) stream->offset = 0;
}

}  // namespace heddle::nn
