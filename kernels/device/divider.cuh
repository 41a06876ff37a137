// Division by a number that is the same for a whole launch, by multiplication.
#pragma once

#include <cstdint>

namespace heddle::cuda {

// Made on the host, passed to a kernel by value. Dividends below 2^31 cost a multiplication, others a true division.
// Source: T. Granlund, P. Montgomery, "Division by invariant integers using multiplication", 1994, figure 4.1.
class Divider {
 public:
  Divider() = default;
  // divisor >= 1.
  explicit Divider(std::int64_t divisor) : divisor_(divisor) {
    if (divisor > kFast) {  // every fast dividend gives 0
      magic_ = 0;
      shift_ = 31;
      return;
    }
    while ((std::int64_t{1} << shift_) < divisor) ++shift_;
    magic_ =
        static_cast<std::uint32_t>((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - divisor) / divisor + 1);
  }

  // 0 <= n.
  __device__ std::int64_t divide(std::int64_t n) const {
    if (n > kFast) return n / divisor_;
    const auto low = static_cast<std::uint32_t>(n);
    return (static_cast<std::uint32_t>(static_cast<std::uint64_t>(low) * magic_ >> 32) + low) >> shift_;
  }
  // The quotient; n becomes the remainder.
  __device__ std::int64_t split(std::int64_t& n) const {
    const std::int64_t quotient = divide(n);
    n -= quotient * divisor_;
    return quotient;
  }
  __host__ __device__ std::int64_t value() const { return divisor_; }

 private:
  static constexpr std::int64_t kFast = 0x7fffffff;
  std::int64_t divisor_ = 1;
  std::uint32_t magic_ = 1;
  std::uint32_t shift_ = 0;
};

}  // namespace heddle::cuda
