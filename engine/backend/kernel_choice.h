// Which kind of implementation backends prefer where an op has several: the device vendor's library (oneDNN, cuDNN,
// cuBLAS) or the project's own kernels. For comparing the two in a whole training and in `heddle bench`. Read by the
// backends when they choose an implementation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle {

// automatic: what is fastest. vendor, own: of that kind where there is one that can do the call, else the other kind.
enum class KernelChoice : std::uint8_t { automatic, vendor, own };
// Who wrote an implementation.
enum class KernelSource : std::uint8_t { vendor, own };

// The choice of the process; automatic until it is set. Thread-safe.
KernelChoice kernel_choice() noexcept;
// Holds for calls that begin later. A captured step (StepGraph) keeps what it was captured with, so set this before
// training begins.
void set_kernel_choice(KernelChoice choice) noexcept;

// "auto", "vendor" and "own".
const char* name_of(KernelChoice choice) noexcept;
const char* name_of(KernelSource source) noexcept;
// The choice of that name, or nothing.
std::optional<KernelChoice> kernel_choice_from(std::string_view name) noexcept;

// Sets the choice while it lives.
class KernelChoiceGuard {
 public:
  explicit KernelChoiceGuard(KernelChoice choice) noexcept : previous_(kernel_choice()) { set_kernel_choice(choice); }
  ~KernelChoiceGuard() { set_kernel_choice(previous_); }
  KernelChoiceGuard(const KernelChoiceGuard&) = delete;
  KernelChoiceGuard& operator=(const KernelChoiceGuard&) = delete;

 private:
  KernelChoice previous_;
};

// The implementation that a call ran on.
struct KernelUsed {
  std::string_view name;  // as the backend calls it ("simd", "dnnl"): text that lives as long as the program
  KernelSource source = KernelSource::own;
};

// For backends: remembers what the calling thread's last choice was. Ops with one implementation need not say so.
void note_kernel(const KernelUsed& used) noexcept;
// What was noted on this thread since the last call of this function; nothing if nothing was.
std::optional<KernelUsed> take_noted_kernel() noexcept;

// True if a row written by `source` is to be tried in this round. With a preference, round 0 tries the rows of that
// kind and round 1 the others; with none, round 0 tries all and round 1 none.
constexpr bool is_tried(KernelSource source, KernelChoice choice, int round) noexcept {
  if (choice == KernelChoice::automatic) return round == 0;
  const bool preferred = (source == KernelSource::vendor) == (choice == KernelChoice::vendor);
  return preferred == (round == 0);
}

}  // namespace heddle
