// Reads the heads in the code that nvcc puts into a host object. Their layout is not documented: it was read off
// nvcc 13.0's output, and the tests compare it with what nvcc was told to build for.
#include "tests/cudasim/fat_binary.h"

#include <fatbinary_section.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/cudasim/internal.h"

namespace cudasim {
namespace {

constexpr std::uint32_t kMagic = 0xba55ed50;
enum Kind : std::uint16_t { kPtx = 1, kCubin = 2 };

// Followed by entry_nbytes of entries.
struct Head {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t head_nbytes;
  std::uint64_t entry_nbytes;
};

// The beginning of an entry's head; the code follows after head_nbytes.
struct EntryHead {
  std::uint16_t kind;
  std::uint16_t version;
  std::uint32_t head_nbytes;
  std::uint64_t code_nbytes;
  std::uint32_t compressed_nbytes;
  std::uint32_t options_at;
  std::uint16_t minor, major;
  std::uint32_t capability;
};

template <class T>
T head_at(const unsigned char* place) {
  T head;
  std::memcpy(&head, place, sizeof(head));
  return head;
}

}  // namespace

bool FatBinary::has_code_for(int capability) const {
  return std::any_of(cubins.begin(), cubins.end(),
                     [&](int built) { return built / 10 == capability / 10 && built <= capability; }) ||
         std::any_of(ptx.begin(), ptx.end(), [&](int built) { return built <= capability; });
}

FatBinary read_fat_binary(const void* wrapper) {
  const auto outer = head_at<__fatBinC_Wrapper_t>(static_cast<const unsigned char*>(wrapper));
  if (outer.magic != FATBINC_MAGIC || outer.data == nullptr) die("__cudaRegisterFatBinary: this is no fat binary");
  const auto* place = reinterpret_cast<const unsigned char*>(outer.data);
  const Head head = head_at<Head>(place);
  if (head.magic != kMagic) die("__cudaRegisterFatBinary: fat binary with the magic number %08x", head.magic);
  FatBinary binary;
  place += head.head_nbytes;
  const unsigned char* const end = place + head.entry_nbytes;
  while (place < end) {
    const EntryHead entry = head_at<EntryHead>(place);
    if (entry.head_nbytes < sizeof(EntryHead)) die("__cudaRegisterFatBinary: an entry without a head");
    if (entry.kind == kCubin) binary.cubins.push_back(static_cast<int>(entry.capability));
    if (entry.kind == kPtx) binary.ptx.push_back(static_cast<int>(entry.capability));
    place += entry.head_nbytes + entry.code_nbytes;
  }
  return binary;
}

}  // namespace cudasim
