#include "engine/backend/kernel_choice.h"

#include <atomic>

namespace heddle {
namespace {

std::atomic<KernelChoice> chosen{KernelChoice::automatic};

thread_local std::optional<KernelUsed> noted;

}  // namespace

KernelChoice kernel_choice() noexcept { return chosen.load(std::memory_order_relaxed); }

void set_kernel_choice(KernelChoice choice) noexcept { chosen.store(choice, std::memory_order_relaxed); }

const char* name_of(KernelChoice choice) noexcept {
  switch (choice) {
    case KernelChoice::vendor: return "vendor";
    case KernelChoice::own: return "own";
    default: return "auto";
  }
}

const char* name_of(KernelSource source) noexcept { return source == KernelSource::vendor ? "vendor" : "own"; }

std::optional<KernelChoice> kernel_choice_from(std::string_view name) noexcept {
  for (const KernelChoice choice : {KernelChoice::automatic, KernelChoice::vendor, KernelChoice::own}) {
    if (name == name_of(choice)) return choice;
  }
  return std::nullopt;
}

void note_kernel(const KernelUsed& used) noexcept { noted = used; }

std::optional<KernelUsed> take_noted_kernel() noexcept {
  const std::optional<KernelUsed> used = noted;
  noted.reset();
  return used;
}

}  // namespace heddle
