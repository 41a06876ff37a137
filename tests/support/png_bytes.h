// Builds PNG files chunk by chunk, so that any header can be claimed. Needs zlib, not libpng.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>

#include "tests/support/gzip.h"

namespace heddle::test {

struct PngSpec {
  std::uint32_t width = 4;
  std::uint32_t height = 3;
  int depth = 8;
  int colour = 0;  // 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha
  bool interlaced = false;
  std::string rows = {};         // unpacked rows with their filter bytes; empty: zeros
  std::string before_data = {};  // more chunks
};

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + body + big_endian(static_cast<std::uint32_t>(crc));
}

inline std::string zlib_pack(const std::string& content) {
  uLongf nbytes = compressBound(content.size());
  std::string packed(nbytes, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &nbytes, reinterpret_cast<const Bytef*>(content.data()),
           content.size());
  packed.resize(nbytes);
  return packed;
}

inline std::string png_bytes(const PngSpec& spec) {
  const int samples = spec.colour == 2 ? 3 : spec.colour == 4 ? 2 : spec.colour == 6 ? 4 : 1;
  const std::size_t row_nbytes = 1 + (std::size_t{spec.width} * static_cast<std::size_t>(samples * spec.depth) + 7) / 8;
  // Interlacing splits rows over seven passes; each begins with its own filter byte, so a few more zeros are needed.
  const std::string rows = spec.rows.empty() ? std::string((row_nbytes + 8) * spec.height, '\0') : spec.rows;
  std::string header = big_endian(spec.width) + big_endian(spec.height);
  header += {static_cast<char>(spec.depth), static_cast<char>(spec.colour), '\0', '\0', spec.interlaced ? '\1' : '\0'};
  std::string file = "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + spec.before_data;
  if (spec.colour == 3 && spec.before_data.empty())
    file += png_chunk("PLTE", std::string("\x0a\x14\x1e\x28\x32\x3c", 6));
  return file + png_chunk("IDAT", zlib_pack(rows)) + png_chunk("IEND", "");
}

}  // namespace heddle::test
