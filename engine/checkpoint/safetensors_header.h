// Parsing and checking of the JSON header of a safetensors file. Used by safetensors.cpp and the fuzzer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "safetensors.h"

namespace heddle::detail {

// Checks the first 8 bytes, and returns the length of the header. Throws: IoError.
std::uint64_t safetensors_header_nbytes(const std::uint8_t (&length)[8], std::uint64_t file_nbytes,
                                        const std::string& path);

// Parses a header and checks it against the size of its file. Throws: IoError with the reason.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t file_nbytes, const std::string& path);

// Why a tensor may not have this name; empty if it may.
std::string refuse_tensor_name(std::string_view name);

// numel * element size; false if that does not fit in 63 bits or a size is negative.
bool safetensors_nbytes(const std::vector<std::int64_t>& shape, SafetensorsType type, std::uint64_t& nbytes) noexcept;

// Text from a file made fit for a message: cut to 80 bytes, everything but printable ASCII escaped, in quotes.
std::string show_text(std::string_view text);

}  // namespace heddle::detail
