// Reads and writes safetensors files: a length, a JSON header, and raw little-endian data. Used by checkpoints.
// A file is never trusted: nothing is allocated or read before the header was found to be consistent.
// Source: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/dtype.h"
#include "../core/file.h"

namespace heddle {

// Element types of the format that Heddle reads and writes.
enum class SafetensorsType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean };

// "F32", "BF16", "BOOL", ... as they stand in the file.
const char* name_of(SafetensorsType type) noexcept;
std::size_t size_of(SafetensorsType type) noexcept;
// Type of a tensor that holds such elements: boolean is u8; f16 has none, read it with read_f32.
std::optional<DType> dtype_for(SafetensorsType type) noexcept;
SafetensorsType safetensors_type_for(DType dtype) noexcept;

struct TensorEntry {
  std::string name;
  SafetensorsType type = SafetensorsType::f32;
  std::vector<std::int64_t> shape;  // at most 8 sizes, each >= 0
  std::uint64_t begin = 0;          // bytes [begin, end) of the data section
  std::uint64_t end = 0;

  std::uint64_t nbytes() const noexcept { return end - begin; }
  std::uint64_t numel() const noexcept { return nbytes() / size_of(type); }
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// The header of a file, checked: entries in the order of the header, their ranges fill the data without gap or overlap.
struct SafetensorsHeader {
  std::vector<TensorEntry> entries;
  SafetensorsMetadata metadata;
  std::uint64_t data_begin = 0;           // bytes before the data section
  std::vector<std::uint32_t> name_order;  // indices of entries, sorted by name
};

// Limits that keep a hostile header cheap; a real model of a hundred tensors has a header of some 10 kB.
inline constexpr std::uint64_t kMaxSafetensorsHeaderNbytes = std::uint64_t{4} << 20;
inline constexpr std::size_t kMaxSafetensorsEntries = 65536;
inline constexpr std::size_t kMaxSafetensorsNameNbytes = 1024;
inline constexpr std::size_t kMaxSafetensorsRank = 8;

class SafetensorsFile {
 public:
  // Reads and checks the header. Throws: IoError with the path and what is wrong.
  static SafetensorsFile open(const std::string& path);
  // The same over memory, which must outlive the result; `name` stands for the path.
  static SafetensorsFile parse(std::span<const std::uint8_t> bytes, const std::string& name);

  const std::string& path() const noexcept { return path_; }
  const std::vector<TensorEntry>& entries() const noexcept { return header_.entries; }
  const SafetensorsMetadata& metadata() const noexcept { return header_.metadata; }
  // Null if there is none of that name. The pointer lives as long as this object.
  const TensorEntry* find(std::string_view name) const noexcept;
  // Copies the raw bytes of one tensor; destination has entry.nbytes() bytes.
  // Throws: IoError if they cannot be read, for instance because the file became shorter.
  void read(const TensorEntry& entry, void* destination) const;
  // Reads F32, F64, BF16 or F16 as floats; destination has entry.numel() elements. F64 is rounded to nearest.
  // Throws: IoError as read; NotSupported for integers.
  void read_f32(const TensorEntry& entry, float* destination) const;

 private:
  SafetensorsFile() = default;
  void read_at(std::uint64_t offset, void* destination, std::size_t nbytes, const TensorEntry& entry) const;

  std::string path_;
  SafetensorsHeader header_;
  std::optional<InputFile> file_;  // empty: reads from memory_
  std::span<const std::uint8_t> memory_;
};

// One tensor to write. Data is borrowed for the call, dense, little-endian.
struct TensorToWrite {
  std::string name;
  SafetensorsType type = SafetensorsType::f32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  // may be null if the shape has no elements
};

// Writes tensors in the given order, with the data section at a multiple of 8 bytes; the same arguments give the same
// bytes. The file appears whole or not at all. Throws: InvalidArgument for a name, shape or metadata that a reader
// would refuse; IoError if it cannot be written (an older file is then unchanged).
void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const SafetensorsMetadata& metadata = {});

}  // namespace heddle
