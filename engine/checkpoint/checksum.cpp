#include "engine/checkpoint/checksum.h"

#include <algorithm>

namespace heddle::checkpoint {
namespace {

constexpr std::uint64_t kChunkNbytes = std::uint64_t{1} << 20;

std::string to_hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[15 - i] = "0123456789abcdef"[(value >> (4 * i)) & 15];
  return text;
}

void add_metadata(Fnv64& hash, const SafetensorsMetadata& metadata) {
  for (const auto& [key, value] : metadata) {
    if (key == kChecksumKey) continue;
    hash.add_text(key);
    hash.add_text(value);
  }
}

void add_header(Fnv64& hash, const std::string& name, SafetensorsType type, const std::vector<std::int64_t>& shape) {
  hash.add_text(name);
  hash.add_text(name_of(type));
  hash.add_number(shape.size());
  for (const std::int64_t size : shape) hash.add_number(static_cast<std::uint64_t>(size));
}

}  // namespace

void Fnv64::add(const void* data, std::size_t nbytes) noexcept {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  std::uint64_t state = state_;
  for (std::size_t i = 0; i < nbytes; ++i) state = (state ^ bytes[i]) * 0x100000001b3u;
  state_ = state;
}

void Fnv64::add_text(std::string_view text) noexcept {
  add_number(text.size());
  add(text.data(), text.size());
}

void write_with_checksum(const std::string& path, std::span<const TensorToWrite> tensors,
                         SafetensorsMetadata metadata) {
  Fnv64 hash;
  add_metadata(hash, metadata);
  for (const TensorToWrite& tensor : tensors) {
    add_header(hash, tensor.name, tensor.type, tensor.shape);
    const auto numel = static_cast<std::size_t>(Shape(tensor.shape).numel());
    hash.add(tensor.data, numel * size_of(tensor.type));
  }
  metadata[kChecksumKey] = to_hex(hash.value());
  write_safetensors(path, tensors, metadata);
}

bool verify_checksum(const SafetensorsFile& file) {
  const auto stated = file.metadata().find(kChecksumKey);
  if (stated == file.metadata().end()) return false;
  Fnv64 hash;
  add_metadata(hash, file.metadata());
  std::vector<unsigned char> chunk(static_cast<std::size_t>(kChunkNbytes));
  for (const TensorEntry& entry : file.entries()) {
    add_header(hash, entry.name, entry.type, entry.shape);
    // Piece by piece, so that a large tensor costs no memory.
    for (std::uint64_t at = entry.begin; at < entry.end; at += kChunkNbytes) {
      TensorEntry piece = entry;
      piece.begin = at;
      piece.end = std::min(entry.end, at + kChunkNbytes);
      file.read(piece, chunk.data());
      hash.add(chunk.data(), static_cast<std::size_t>(piece.nbytes()));
    }
  }
  if (to_hex(hash.value()) != stated->second) {
    throw IoError(file.path(), join_text("is damaged: checksum of its content is ", to_hex(hash.value()),
                                         ", the file states ", stated->second.substr(0, 16)));
  }
  return true;
}

}  // namespace heddle::checkpoint
