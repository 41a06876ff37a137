// Which gradients travel together. Used by DataParallel; knows nothing of communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <heddle/nn/parameter_buffer.h>

namespace heddle::comm {

// A range of the flat gradient buffer.
struct Bucket {
  std::size_t first = 0, last = 0;  // parameters [first, last) of ParameterBuffer::segments()
  std::int64_t begin = 0, end = 0;  // elements; the bucket with the last parameter ends behind the tail
};

struct BucketOptions {
  // A bucket is closed when it holds so much: enough that the time of a call is that of its bytes, little enough that
  // the first one goes out early.
  std::size_t bucket_nbytes = std::size_t{12} << 20;
  // The last one to be ready, with the first layers, has at most so much (but at least one parameter), since nothing is
  // left to compute behind which it could hide.
  std::size_t last_nbytes = std::size_t{3} << 20;
};

// Buckets in the order in which backward completes them: the last layers first. They cover the buffer and its tail.
// What fits into one of last_nbytes is one.
std::vector<Bucket> plan_buckets(const std::vector<nn::ParameterSegment>& segments, const BucketOptions& options);

}  // namespace heddle::comm
