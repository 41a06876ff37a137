// Reads a file or a block of memory as a stream of bytes and unpacks gzip on the way, by content and not by name.
// Used by the IDX reader; knows nothing of IDX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/core/file.h"

namespace heddle::datasets {

class UnpackedReader {
 public:
  // Throws: IoError if the file cannot be opened or read.
  explicit UnpackedReader(const std::string& path);
  // Reads from memory, which must outlive the reader; `name` stands for the path in messages.
  UnpackedReader(std::span<const std::uint8_t> bytes, std::string name);
  UnpackedReader(const UnpackedReader&) = delete;
  UnpackedReader& operator=(const UnpackedReader&) = delete;
  ~UnpackedReader();

  const std::string& path() const noexcept { return path_; }
  bool gzip() const noexcept;
  // Bytes of the file as it is on the disk.
  std::uint64_t packed_nbytes() const noexcept;
  // The most bytes that can come out: no deflate stream unpacks to more than 1032 times its size.
  std::uint64_t max_unpacked_nbytes() const noexcept;
  // Bytes delivered so far, and their CRC-32.
  std::uint64_t nbytes() const noexcept { return nbytes_; }
  std::uint32_t crc32() const noexcept { return crc32_; }
  // Total that the caller expects; makes the message about a file that is cut off say "need ..., got ...".
  void set_expected_nbytes(std::uint64_t nbytes) noexcept { expected_nbytes_ = nbytes; }

  // Delivers up to nbytes into data and returns how many there were; fewer only at the end. The end of a gzip file is
  // reported only after checksum and length of all its members were found right and nothing follows them.
  // Throws: IoError for a stream that is cut off, damaged or followed by other bytes.
  std::size_t read(void* data, std::size_t nbytes);

 private:
  struct Source;
  struct Inflater;
  std::size_t read_packed(void* data, std::size_t nbytes);
  std::size_t inflate_some(void* data, std::size_t nbytes);
  [[noreturn]] void fail_cut_off() const;

  std::string path_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Inflater> inflater_;  // null for a plain file
  std::uint64_t nbytes_ = 0;
  std::uint64_t expected_nbytes_ = 0;
  std::uint32_t crc32_ = 0;
};

// CRC-32 (the one of gzip and PNG) of a block of memory.
std::uint32_t crc32_of(std::span<const std::uint8_t> bytes);

}  // namespace heddle::datasets
