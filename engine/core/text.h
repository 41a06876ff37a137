// Small helpers for messages about names: which known name was probably meant. Used wherever a user names something.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// Fewest insertions, deletions, replacements and swaps of neighbouring characters that turn a into b.
// Source: "optimal string alignment distance", a restricted Damerau-Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The known name closest to `name` in edit distance without regard to case (the first of equals), or an empty string
// if none is close: more than a third of the longer name's characters would have to change.
std::string nearest_name(std::string_view name, std::span<const std::string> known);

// "unknown model 'lenett'; did you mean 'lenet'? Known: lenet, lenet-d2l". Without a close name the question is left
// out. `what` says what kind of name it is.
std::string unknown_name_message(std::string_view what, std::string_view name, std::span<const std::string> known);

// "a, b, c"
std::string join_names(std::span<const std::string> names, std::string_view separator = ", ");

}  // namespace heddle
