#include "engine/backend/math_settings.h"

#include <mutex>

namespace heddle {
namespace {

struct Shared {
  std::mutex mutex;
  MathSettings settings;
};
Shared& shared() {
  static Shared instance;
  return instance;
}

}  // namespace

MathSettings math_settings() {
  const std::lock_guard lock(shared().mutex);
  return shared().settings;
}

void set_math_settings(const MathSettings& settings) {
  const std::lock_guard lock(shared().mutex);
  shared().settings = settings;
}

}  // namespace heddle
