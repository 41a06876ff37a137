// A 64-bit hash of memory, to find out whether two ranks hold the same bits. Against accidents, not against attackers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::comm {

// Depends on the bytes and their places alone, not on the number of threads. Each word is taken in by a step that can
// be undone, so bits that changed inside one word of 8 bytes always change the result. Uses parallel_for.
std::uint64_t hash_bits(const void* data, std::size_t nbytes);
// The hash of two, in this order.
std::uint64_t join_hashes(std::uint64_t a, std::uint64_t b) noexcept;

}  // namespace heddle::comm
