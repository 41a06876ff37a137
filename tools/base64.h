// Bytes inside of JSON and HTML. Knows nothing of either.
#pragma once

#include <string>
#include <string_view>

namespace heddle::tools {

// With padding. Source: RFC 4648, section 4.
std::string to_base64(std::string_view bytes);

// Whether a text is what to_base64 gives, for texts from outside that go into a page.
bool is_base64(std::string_view text) noexcept;

}  // namespace heddle::tools
