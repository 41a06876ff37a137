#include "nccl_comm/text_exchange.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <utility>

namespace heddle::comm {
namespace {

template <class T>
std::vector<T> gather(Communicator& communicator, const std::vector<T>& values, Device device, std::string_view what) {
  const auto n = static_cast<std::int64_t>(values.size());
  Tensor all = Tensor::empty({communicator.world_size() * n}, dtype_of_v<T>, device);
  communicator.all_gather(Tensor::from_values(values, {n}, device), all, what);
  return all.to_vector<T>();
}

// The first line in which the two differ, of each; "nothing more" at the end of the shorter one.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream in_a(a), in_b(b);
  std::string line_a, line_b;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(in_a, line_a));
    const bool more_b = static_cast<bool>(std::getline(in_b, line_b));
    if (!more_a) line_a = "nothing more";
    if (!more_b) line_b = "nothing more";
    if (line_a != line_b || (!more_a && !more_b)) return {line_a, line_b};
  }
}

}  // namespace

std::vector<std::string> all_gather_text(Communicator& communicator, const std::string& text, Device device,
                                         std::string_view what) {
  const std::vector<std::int64_t> sizes =
      gather(communicator, std::vector{static_cast<std::int64_t>(text.size())}, device, what);
  const auto longest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::uint8_t> padded(text.begin(), text.end());
  padded.resize(longest, 0);
  const std::vector<std::uint8_t> all = gather(communicator, padded, device, what);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * longest);
    texts.emplace_back(begin, begin + sizes[rank]);
  }
  return texts;
}

std::optional<TextDifference> compare_text(Communicator& communicator, const std::string& text, Device device,
                                           std::string_view what) {
  const std::vector<std::string> texts = all_gather_text(communicator, text, device, what);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    auto [first, other] = first_difference(texts[0], texts[rank]);
    return TextDifference{static_cast<int>(rank), std::move(first), std::move(other)};
  }
  return std::nullopt;
}

std::string broadcast_text(Communicator& communicator, const std::string& text, int root, Device device,
                           std::string_view what) {
  Tensor size = Tensor::from_values(std::vector{static_cast<std::int64_t>(text.size())}, {1}, device);
  communicator.broadcast(size, root, what);
  std::vector<std::uint8_t> bytes(text.begin(), text.end());
  bytes.resize(static_cast<std::size_t>(size.item()), 0);
  Tensor content = Tensor::from_values(bytes, {static_cast<std::int64_t>(bytes.size())}, device);
  communicator.broadcast(content, root, what);
  bytes = content.to_vector<std::uint8_t>();
  return {bytes.begin(), bytes.end()};
}

}  // namespace heddle::comm
