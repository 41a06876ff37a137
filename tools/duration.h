// Lengths of time as people type them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle::tools {

// Seconds of "90", "90.5", "45s", "10m", "1h30m", "2d", "1d12h": a number of seconds, or numbers with the units d, h, m
// and s, each at most once and in this order. Nothing for any other text, and for more than a thousand days.
std::optional<double> parse_duration(std::string_view text);

// The same in its shortest form with whole seconds: "1h30m", "45s"; "0s" for none.
std::string duration_text(double seconds);

}  // namespace heddle::tools
