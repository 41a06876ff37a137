// Hash maps by plain data: what the wrappers of the libraries look up chosen algorithms by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace heddle::cuda {

// Hash and comparison of a key that is plain data without padding, as bytes.
template <class Key>
struct BytesHash {
  static_assert(std::has_unique_object_representations_v<Key> && sizeof(Key) % 8 == 0);
  std::size_t operator()(const Key& key) const noexcept {
    std::uint64_t hash = 0xcbf29ce484222325u;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&key);
    for (std::size_t i = 0; i < sizeof(Key); i += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes + i, 8);
      hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};
template <class Key>
struct BytesEqual {
  bool operator()(const Key& a, const Key& b) const noexcept { return std::memcmp(&a, &b, sizeof(Key)) == 0; }
};

}  // namespace heddle::cuda
