// What the kernel of a batch takes: plain data that host code fills too. No device code.
#pragma once

#include <cstdint>

namespace heddle::cuda {

inline constexpr int kGatherThreads = 256;
inline constexpr int kGatherMaxChannels = 4;
// Indices of cursor_slot.
inline constexpr int kCursorPosition = 0, kCursorEpoch = 1, kCursorTicket = 2, kCursorCount = 4;

template <class T>
struct GatherBuffers {
  const std::uint8_t* images;  // (M,height,width,channels)
  const std::uint8_t* labels;  // (M)
  const std::int32_t* order;   // (M)
  std::int64_t* cursor;        // (kCursorCount)
  T* y;                        // (batch,height,width,channels)
  std::int64_t* batch_labels;  // (batch)
};

struct GatherSettings {
  std::int64_t count;  // M
  std::int64_t batch;
  std::int64_t first;    // images of the batch before these: other ranks'
  std::int64_t advance;  // what the cursor moves on by
  std::uint64_t seed;
  int height, width, channels;  // of one image, whose elements an int can count
  int random_crop;
  bool random_flip;
  bool augmented;  // false: neither crop nor flip is on
  float scale[kGatherMaxChannels], shift[kGatherMaxChannels];
};

}  // namespace heddle::cuda
