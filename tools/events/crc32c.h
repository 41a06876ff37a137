// The checksum of TensorBoard's event files. Used by the files beside it; knows nothing of them.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle::tools {

// CRC-32C of the bytes: polynomial 0x1EDC6F41, reflected, begun and ended inverted. Source: RFC 3720, B.4.
std::uint32_t crc32c(std::string_view bytes) noexcept;

// What a record holds, so that a checksum of bytes that hold checksums stays good: rotated right by 15 bits, plus
// 0xa282ead8, modulo 2^32. Source: TensorFlow's TFRecord format.
std::uint32_t masked_crc32c(std::string_view bytes) noexcept;

}  // namespace heddle::tools
