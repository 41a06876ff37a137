// A checksum over everything in a safetensors file, kept in its metadata, so that a file that was damaged is found out
// even where every value is possible. Used by state_dict and checkpoint. Not a protection against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "../core/shape.h"
#include "safetensors.h"

namespace heddle::checkpoint {

// FNV-1a, 64 bits: each step is a bijection of the state, so one changed byte always changes the result.
// Source: Fowler, Noll, Vo; draft-eastlake-fnv.
class Fnv64 {
 public:
  void add(const void* data, std::size_t nbytes) noexcept;
  // Text with its length, so that neighbouring texts cannot trade characters.
  void add_text(std::string_view text) noexcept;
  void add_number(std::uint64_t value) noexcept { add(&value, sizeof value); }
  std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

// Metadata key of the checksum: 16 hexadecimal digits.
inline constexpr const char* kChecksumKey = "heddle.checksum";

// write_safetensors with the checksum added to the metadata. Throws as that.
void write_with_checksum(const std::string& path, std::span<const TensorToWrite> tensors, SafetensorsMetadata metadata);

// Reads the whole file once and compares; a file without a checksum (of another program) passes. Returns whether it has
// one. Throws: IoError if the content is not what was written.
bool verify_checksum(const SafetensorsFile& file);

}  // namespace heddle::checkpoint
