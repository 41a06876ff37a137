// Reads IDX files, the format of MNIST and Fashion-MNIST: 00 00, element type, rank, big-endian 32-bit sizes, elements.
// Used by the data sets and by `heddle data`; knows nothing of classes and names of sets.
// Source: http://yann.lecun.com/exdb/mnist/ (section "file formats").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace heddle::datasets {

struct IdxFile {
  std::string path;
  std::vector<std::int64_t> dims;   // 1 to 4 sizes; the first counts the items
  std::vector<std::uint8_t> data;   // row-major, as many as the product of dims
  std::uint32_t payload_crc32 = 0;  // of the whole unpacked file, header included
  std::uint64_t payload_nbytes = 0;
  bool gzip = false;  // packed on the disk
};

struct IdxReadOptions {
  int rank = 0;                                        // required number of sizes: 1 labels, 3 images; 0 = any
  std::uint64_t max_nbytes = std::uint64_t{16} << 30;  // refuse files that unpack to more
};

// Reads a whole file of unsigned bytes, plain or gzip by content. Memory grows with the data that is really there, not
// with what the header claims, and unpacking stops one byte after what the header claims.
// Throws: IoError with the full path, what was expected and what was found; gzip checksums and lengths are verified.
IdxFile read_idx_file(const std::string& path, const IdxReadOptions& options = {});

// The same from memory; `name` stands for the path.
IdxFile parse_idx(std::span<const std::uint8_t> bytes, const std::string& name, const IdxReadOptions& options = {});

}  // namespace heddle::datasets
