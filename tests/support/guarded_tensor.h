// A tensor between guard elements, so that a test sees writes outside it and changes of what should be constant.
#pragma once

#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace heddle::testing {

class GuardedTensor {
 public:
  // A copy of values (on the CPU). shift moves it by that many elements, to try other alignments. With guard_reads the
  // guards may not be read either (checked under the address sanitizer, on the CPU).
  GuardedTensor(const Tensor& values, Device device, std::int64_t shift, bool guard_reads);
  ~GuardedTensor();
  GuardedTensor(const GuardedTensor&) = delete;
  GuardedTensor& operator=(const GuardedTensor&) = delete;

  const Tensor& tensor() const noexcept { return tensor_; }
  // "" if the guards are whole, else which byte is not.
  std::string check_guards() const;
  // "" if guards and elements are what they were, else which byte is not.
  std::string check_unchanged() const;
  // The bytes of the elements now.
  std::vector<unsigned char> bytes() const;

 private:
  std::vector<unsigned char> all_bytes() const;
  std::string check_range(const std::vector<unsigned char>& now, std::size_t begin, std::size_t end) const;
  void set_readable(bool readable) const;

  Tensor buffer_, tensor_;
  std::vector<unsigned char> original_;
  std::size_t begin_, end_;
  bool guard_reads_;
};

}  // namespace heddle::testing
