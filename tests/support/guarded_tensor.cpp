#include "tests/support/guarded_tensor.h"

#include <cstring>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEDDLE_TEST_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(HEDDLE_TEST_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace heddle::testing {
namespace {

constexpr std::int64_t kGuard = 64;  // elements on each side: keeps the alignment of the buffer

}  // namespace

GuardedTensor::GuardedTensor(const Tensor& values, Device device, std::int64_t shift, bool guard_reads)
    : guard_reads_(guard_reads && device.is_cpu()) {
  const std::size_t size = size_of(values.dtype());
  Tensor host = Tensor::empty({values.numel() + 2 * kGuard + shift}, values.dtype());
  begin_ = static_cast<std::size_t>(kGuard + shift) * size;
  end_ = begin_ + values.nbytes();
  auto* const bytes = static_cast<unsigned char*>(host.mutable_raw_data());
  // Guards of an input are NaN or -1, so that reading them shows in the result; those of an output are another pattern
  // than anything that a kernel copies.
  std::memset(bytes, guard_reads ? 0xff : 0xa5, host.nbytes());
  if (values.nbytes() != 0) std::memcpy(bytes + begin_, values.raw_data(), values.nbytes());
  original_.assign(bytes, bytes + host.nbytes());
  buffer_ = host.to(device);
  tensor_ = buffer_.slice_of_flat(kGuard + shift, values.shape());
  set_readable(false);
}

GuardedTensor::~GuardedTensor() { set_readable(true); }

void GuardedTensor::set_readable(bool readable) const {
  if (!guard_reads_) return;
  const auto* const data = static_cast<const unsigned char*>(buffer_.raw_data());
  if (readable) {
    ASAN_UNPOISON_MEMORY_REGION(data, buffer_.nbytes());
  } else {
    ASAN_POISON_MEMORY_REGION(data, begin_);
    ASAN_POISON_MEMORY_REGION(data + end_, buffer_.nbytes() - end_);
  }
}

std::vector<unsigned char> GuardedTensor::all_bytes() const {
  set_readable(true);
  const Tensor host = buffer_.to(Device::cpu());
  const auto* const data = static_cast<const unsigned char*>(host.raw_data());
  std::vector<unsigned char> bytes(data, data + host.nbytes());
  set_readable(false);
  return bytes;
}

std::string GuardedTensor::check_range(const std::vector<unsigned char>& now, std::size_t begin,
                                       std::size_t end) const {
  for (std::size_t i = begin; i < end; ++i) {
    if (now[i] == original_[i]) continue;
    return join_text("byte ", static_cast<std::int64_t>(i) - static_cast<std::int64_t>(begin_), " of ", end_ - begin_,
                     " changed from ", int{original_[i]}, " to ", int{now[i]});
  }
  return "";
}

std::string GuardedTensor::check_guards() const {
  const std::vector<unsigned char> now = all_bytes();
  const std::string before = check_range(now, 0, begin_);
  return before.empty() ? check_range(now, end_, now.size()) : before;
}

std::string GuardedTensor::check_unchanged() const {
  const std::vector<unsigned char> now = all_bytes();
  return check_range(now, 0, now.size());
}

std::vector<unsigned char> GuardedTensor::bytes() const {
  const std::vector<unsigned char> now = all_bytes();
  return {now.begin() + static_cast<std::ptrdiff_t>(begin_), now.begin() + static_cast<std::ptrdiff_t>(end_)};
}

}  // namespace heddle::testing
