#include "nccl_comm/buckets.h"

namespace heddle::comm {
namespace {

std::size_t nbytes_between(std::int64_t begin, std::int64_t end) {
  return static_cast<std::size_t>(end - begin) * size_of(DType::f32);
}

}  // namespace

std::vector<Bucket> plan_buckets(const std::vector<nn::ParameterSegment>& segments, const BucketOptions& options) {
  HEDDLE_CHECK(!segments.empty(), "plan_buckets: there are no parameters");
  HEDDLE_CHECK(options.bucket_nbytes > 0, "plan_buckets: buckets of 0 bytes");
  // The first layers, which are ready last.
  std::size_t front = 1;
  while (front < segments.size() && nbytes_between(0, segments[front].end) <= options.last_nbytes) ++front;
  std::vector<Bucket> buckets;
  const auto close = [&](std::size_t first, std::size_t last) {
    const std::int64_t end = last == segments.size() ? segments.back().end + tail_slot::kCount : segments[last].begin;
    buckets.push_back({first, last, segments[first].begin, end});
  };
  std::size_t last = segments.size();
  for (std::size_t first = segments.size(); first-- > front;) {
    if (first == front || nbytes_between(segments[first].begin, segments[last - 1].end) >= options.bucket_nbytes) {
      close(first, last);
      last = first;
    }
  }
  close(0, front);
  return buckets;
}

}  // namespace heddle::comm
