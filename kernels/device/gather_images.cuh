// The head of a training step: a batch of images from the resident data set, augmented, normalised, with its labels.
#pragma once

#include "kernels/device/gather_images_types.cuh"
#include "kernels/device/philox.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// What happens to one image; the rule is in engine/backend/op_params.h.
struct Augmentation {
  int flip, down, right;
};

__device__ inline Augmentation augmentation_of(const GatherSettings& s, std::int64_t epoch, std::int64_t image) {
  if (!s.augmented) return {0, 0, 0};
  const PhiloxBlock words = philox_block(s.seed, static_cast<std::uint64_t>(image),
                                         static_cast<std::uint64_t>(epoch) | std::uint64_t{1} << 63);
  const auto sides = static_cast<std::uint64_t>(2 * s.random_crop + 1);
  return {s.random_flip && (words.at[0] & 1) != 0 ? 1 : 0, static_cast<int>(words.at[1] * sides >> 32) - s.random_crop,
          static_cast<int>(words.at[2] * sides >> 32) - s.random_crop};
}

// Byte `element` of the augmented image; 0 beyond the edge.
__device__ inline std::uint8_t augmented_byte(const GatherSettings& s, const Augmentation& a, const std::uint8_t* image,
                                              int element) {
  const int pixel = element / s.channels, channel = element - pixel * s.channels;
  const int row = pixel / s.width, column = pixel - row * s.width;
  const int h = row + a.down, w = (a.flip != 0 ? s.width - 1 - column : column) + a.right;
  if (h < 0 || h >= s.height || w < 0 || w >= s.width) return 0;
  return image[(h * s.width + w) * s.channels + channel];
}

// Scale and shift of a channel, by constant indices.
__device__ inline float normalised(const GatherSettings& s, std::uint8_t value, int channel) {
  float scale = s.scale[0], shift = s.shift[0];
#pragma unroll
  for (int c = 1; c < kGatherMaxChannels; ++c) {
    if (channel == c) {
      scale = s.scale[c];
      shift = s.shift[c];
    }
  }
  return static_cast<float>(value) * scale + shift;
}

// y[j] = image order[position + first + j], labels likewise. One block: one image; one thread: packs of N elements of
// it (16 bytes of the result), a block apart. N is 1 where images are no multiple of 16 bytes. Blocks of up to 256; one
// more block than images, so that the cursor moves on even with none. Bytes an element: 1 read, sizeof(T) written.
// Deterministic. The last block to end moves the cursor on; all others have read it by then.
template <class T, int N>
__global__ void __launch_bounds__(kGatherThreads) gather_images_kernel(GatherBuffers<T> b, GatherSettings s) {
  __shared__ std::int64_t image;
  __shared__ Augmentation augmentation;
  const std::int64_t j = blockIdx.x;
  if (threadIdx.x == 0 && j < s.batch) {
    image = b.order[b.cursor[kCursorPosition] + s.first + j];
    augmentation = augmentation_of(s, b.cursor[kCursorEpoch], image);
    b.batch_labels[j] = b.labels[image];
  }
  __syncthreads();
  if (j < s.batch) {
    const int numel = s.height * s.width * s.channels;
    const std::uint8_t* const from = b.images + image * numel;
    T* const to = b.y + j * numel;
    for (int e = static_cast<int>(threadIdx.x) * N; e < numel; e += static_cast<int>(blockDim.x) * N) {
      Pack<std::uint8_t, N> bytes;
      if (s.augmented) {
#pragma unroll
        for (int k = 0; k < N; ++k) bytes.at[k] = augmented_byte(s, augmentation, from, e + k);
      } else {
        bytes = load_pack<N>(from + e);
      }
      Pack<T, N> out;
      int channel = s.channels == 1 ? 0 : e % s.channels;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        out.at[k] = convert_to<T>(normalised(s, bytes.at[k], channel));
        channel = channel + 1 == s.channels ? 0 : channel + 1;
      }
      store_pack<N>(to + e, out);
    }
  }
  if (threadIdx.x == 0) {
    auto* const ticket = reinterpret_cast<unsigned long long*>(b.cursor + kCursorTicket);
    if (atomicAdd(ticket, 1ull) == gridDim.x - 1) {
      *ticket = 0;
      b.cursor[kCursorPosition] += s.advance;
    }
  }
}

}  // namespace heddle::cuda
