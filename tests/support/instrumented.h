// Whether this program was built with a sanitizer, for tests that measure or that take long.
#pragma once

namespace heddle::test {

// With the thread sanitizer: a program runs some twenty times as long.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kWatchesRaces = true;
#elif defined(__has_feature)
inline constexpr bool kWatchesRaces = __has_feature(thread_sanitizer);
#else
inline constexpr bool kWatchesRaces = false;
#endif

// With the address or the thread sanitizer: memory and time say nothing then.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kInstrumented = true;
#elif defined(__has_feature)
inline constexpr bool kInstrumented = __has_feature(address_sanitizer) || kWatchesRaces;
#else
inline constexpr bool kInstrumented = kWatchesRaces;
#endif

}  // namespace heddle::test
