#include "tools/checkpoint_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/checkpoint/checksum.h"
#include "engine/checkpoint/safetensors.h"

namespace heddle::tools {
namespace {

std::vector<std::byte> bytes_of(const SafetensorsFile& file, const TensorEntry& entry) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.nbytes()));
  file.read(entry, bytes.data());
  return bytes;
}

std::string value_text(const TensorEntry& entry, const std::byte* value, std::size_t nbytes) {
  if (entry.type == SafetensorsType::f32) {
    float number = 0;
    std::memcpy(&number, value, sizeof number);
    return fmt::format("{:.9g}", number);
  }
  std::string digits;
  for (std::size_t i = nbytes; i > 0; --i) digits += fmt::format("{:02x}", static_cast<unsigned>(value[i - 1]));
  return "0x" + digits;
}

std::string tensor_difference(const SafetensorsFile& a, const TensorEntry& entry, const SafetensorsFile& b) {
  const TensorEntry* const other = b.find(entry.name);
  if (other == nullptr) return fmt::format("'{}' is in the first alone", entry.name);
  if (other->type != entry.type || other->shape != entry.shape) {
    return fmt::format("'{}' has another type or shape", entry.name);
  }
  const std::vector<std::byte> mine = bytes_of(a, entry), theirs = bytes_of(b, *other);
  const auto place = std::mismatch(mine.begin(), mine.end(), theirs.begin()).first;
  if (place == mine.end()) return {};
  const std::size_t nbytes = size_of(entry.type);
  const std::size_t element = static_cast<std::size_t>(place - mine.begin()) / nbytes;
  return fmt::format("'{}' differs first at element {} of {}: {} and {}", entry.name, element, entry.numel(),
                     value_text(entry, mine.data() + element * nbytes, nbytes),
                     value_text(entry, theirs.data() + element * nbytes, nbytes));
}

std::string state_difference(const SafetensorsFile& a, const SafetensorsFile& b) {
  if (a.metadata().size() != b.metadata().size()) return "the training state has other parts";
  for (const auto& [key, text] : a.metadata()) {
    // It covers the tensors, which were compared one by one.
    if (key == checkpoint::kChecksumKey) continue;
    const auto other = b.metadata().find(key);
    if (other == b.metadata().end()) return fmt::format("'{}' is in the first alone", key);
    if (other->second != text) return fmt::format("'{}' differs: {} and {}", key, text, other->second);
  }
  return {};
}

}  // namespace

CheckpointComparison compare_checkpoints(const std::string& a, const std::string& b) {
  const SafetensorsFile first = SafetensorsFile::open(a), second = SafetensorsFile::open(b);
  CheckpointComparison result;
  for (const TensorEntry& entry : first.entries()) {
    result.difference = tensor_difference(first, entry, second);
    if (!result.difference.empty()) return result;
    ++result.tensors;
    result.values += static_cast<std::int64_t>(entry.numel());
  }
  for (const TensorEntry& entry : second.entries()) {
    if (first.find(entry.name) != nullptr) continue;
    result.difference = fmt::format("'{}' is in the second alone", entry.name);
    return result;
  }
  result.difference = state_difference(first, second);
  return result;
}

}  // namespace heddle::tools
