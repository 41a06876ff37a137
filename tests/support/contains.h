// A check that a message says what it should. Only for the thread that asserts.
#pragma once

#include <string>

#include "tests/support/catch.h"

namespace heddle::test {

// Checks that text holds part; returns whether it does.
inline bool contains(const std::string& text, const std::string& part) {
  INFO(text << "\n  should contain: " << part);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace heddle::test
