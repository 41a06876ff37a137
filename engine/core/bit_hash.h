// A 64-bit hash of memory, to find out whether two replicas hold the same bits. Against accidents, not against
// attackers. Used by the backends, which all compute this one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// The sum of one term for each word of 8 bytes (the last one filled up with zeros) and its place, and the length: any
// order of adding gives the same bits, so it can be computed in parallel. A term is a function of the word that can be
// undone, so bits that changed inside one word always change the result. Uses parallel_for.
std::uint64_t hash_bits(const void* data, std::size_t nbytes);

}  // namespace heddle
