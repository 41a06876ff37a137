// Limits of the simulated chip, which are those of sm_90 but for the number of multiprocessors.
#pragma once

namespace cudasim {

// Compute capability 9.0, unless a test says another.
constexpr int kCapability = 90;
constexpr int kMultiprocessors = 2;
constexpr int kWarpSize = 32;
constexpr int kMaxThreadsPerBlock = 1024;
constexpr unsigned kMaxBlock[3] = {1024, 1024, 64};
constexpr unsigned kMaxGrid[3] = {2147483647u, 65535u, 65535u};
constexpr int kMaxThreadsPerMultiprocessor = 2048;
constexpr int kMaxBlocksPerMultiprocessor = 32;
constexpr int kRegisters = 65536;
// What a kernel is taken to use: the simulator cannot know.
constexpr int kRegistersPerThread = 32;
constexpr int kSharedPerBlock = 48 << 10;
constexpr int kSharedPerBlockOptIn = 227 << 10;
constexpr int kSharedPerMultiprocessor = 228 << 10;
constexpr int kSharedReservedPerBlock = 1 << 10;
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

}  // namespace cudasim
