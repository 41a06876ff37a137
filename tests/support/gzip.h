// Packs and builds files of data sets for tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::test {

inline std::string gzip(std::string_view content, int level = 6) {
  z_stream z{};
  if (deflateInit2(&z, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::bad_alloc();
  std::string packed(deflateBound(&z, content.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  z.avail_in = static_cast<uInt>(content.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&z, Z_FINISH);
  packed.resize(z.total_out);
  deflateEnd(&z);
  if (result != Z_STREAM_END) throw std::runtime_error("deflate");
  return packed;
}

inline std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// Header of an IDX file of unsigned bytes.
inline std::string idx_header(const std::vector<std::uint32_t>& dims) {
  std::string text = big_endian(0x800u + static_cast<std::uint32_t>(dims.size()));
  for (const std::uint32_t size : dims) text += big_endian(size);
  return text;
}

// nbytes bytes that do not pack well and depend on the seed only.
inline std::string noise_bytes(std::size_t nbytes, std::uint32_t seed = 1) {
  std::string text(nbytes, '\0');
  for (char& c : text) {
    seed = seed * 1664525u + 1013904223u;
    c = static_cast<char>(seed >> 24);
  }
  return text;
}

}  // namespace heddle::test
