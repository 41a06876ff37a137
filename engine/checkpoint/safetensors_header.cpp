#include "engine/checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace heddle::detail {
namespace {

constexpr SafetensorsType kTypes[] = {SafetensorsType::f64,  SafetensorsType::f32,    SafetensorsType::f16,
                                      SafetensorsType::bf16, SafetensorsType::i64,    SafetensorsType::i32,
                                      SafetensorsType::u8,   SafetensorsType::boolean};

bool type_from_name(std::string_view name, SafetensorsType& type) {
  for (const SafetensorsType candidate : kTypes) {
    if (name == name_of(candidate)) {
      type = candidate;
      return true;
    }
  }
  return false;
}

std::string known_types() {
  std::string text;
  for (const SafetensorsType type : kTypes) text += join_text(text.empty() ? "" : " ", name_of(type));
  return text;
}

// Receives the header event by event, so that no JSON tree is built and every rule is checked as early as possible.
// A handler that returns false stops the parser, which keeps no recursion whatever the nesting is.
class HeaderReader {
 public:
  using Json = nlohmann::json;

  HeaderReader(SafetensorsHeader& header, std::uint64_t data_nbytes) : header_(header), data_nbytes_(data_nbytes) {}
  const std::string& reason() const noexcept { return reason_; }

  bool null() { return refuse_value("null"); }
  bool boolean(bool) { return refuse_value("a boolean"); }
  bool binary(Json::binary_t&) { return refuse_value("binary data"); }
  bool number_float(Json::number_float_t, const std::string& text) {
    return refuse_value(join_text("the number ", show_text(text), " (not an unsigned 63-bit integer)"));
  }
  bool number_integer(Json::number_integer_t value) { return refuse_value(join_text("the negative number ", value)); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (state_ != State::shape && state_ != State::offsets) return refuse_value("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse_value(join_text("the number ", value, " (more than 63 bits)"));
    }
    if (state_ == State::shape) {
      if (entry_.shape.size() == kMaxSafetensorsRank) {
        return refuse(join_text(where(), " has more than ", kMaxSafetensorsRank, " sizes"));
      }
      entry_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (num_offsets_ == 2) return refuse(where() + " has more than two data_offsets");
    (num_offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    return true;
  }
  bool string(std::string& value) {
    if (state_ == State::metadata_value) {
      if (header_.metadata.size() == kMaxSafetensorsEntries) {
        return refuse(join_text("has more than ", kMaxSafetensorsEntries, " items of metadata"));
      }
      if (!header_.metadata.emplace(std::move(metadata_key_), std::move(value)).second) {
        return refuse("has an item of metadata twice");
      }
      state_ = State::metadata;
      return true;
    }
    if (state_ != State::type) return refuse_value("the text " + show_text(value));
    if (!type_from_name(value, entry_.type)) {
      return refuse(join_text(where(), " has dtype ", show_text(value), ", expected one of ", known_types()));
    }
    state_ = State::entry;
    return true;
  }
  bool start_object(std::size_t) {
    switch (state_) {
      case State::begin: state_ = State::top; return true;
      case State::entry_value: state_ = State::entry; return true;
      case State::metadata_begin: state_ = State::metadata; return true;
      default: return refuse_value("an object");
    }
  }
  bool start_array(std::size_t) {
    switch (state_) {
      case State::shape_begin: state_ = State::shape; return true;
      case State::offsets_begin: state_ = State::offsets; return true;
      default: return refuse_value("an array");
    }
  }
  bool end_array() {
    if (state_ == State::offsets && num_offsets_ != 2) {
      return refuse(join_text(where(), " has ", num_offsets_, " data_offsets, expected 2"));
    }
    state_ = State::entry;
    return true;
  }
  bool end_object() {
    if (state_ == State::entry) return end_entry();
    state_ = state_ == State::metadata ? State::top : State::end;
    return true;
  }
  bool key(std::string& key) {
    if (state_ == State::top) {
      if (key == "__metadata__") {
        if (std::exchange(has_metadata_, true)) return refuse("has __metadata__ twice");
        state_ = State::metadata_begin;
        return true;
      }
      if (const std::string why = refuse_tensor_name(key); !why.empty()) {
        return refuse(join_text("tensor name ", show_text(key), " ", why));
      }
      if (header_.entries.size() == kMaxSafetensorsEntries) {
        return refuse(join_text("has more than ", kMaxSafetensorsEntries, " tensors"));
      }
      entry_ = TensorEntry{};
      entry_.name = std::move(key);
      seen_ = 0;
      num_offsets_ = 0;
      state_ = State::entry_value;
      return true;
    }
    if (state_ == State::metadata) {
      metadata_key_ = std::move(key);
      state_ = State::metadata_value;
      return true;
    }
    unsigned bit = 0;
    if (key == "dtype") bit = 1, state_ = State::type;
    if (key == "shape") bit = 2, state_ = State::shape_begin;
    if (key == "data_offsets") bit = 4, state_ = State::offsets_begin;
    if (bit == 0) return refuse(join_text(where(), " has the unknown field ", show_text(key)));
    if ((seen_ & bit) != 0) return refuse(join_text(where(), " has the field ", key, " twice"));
    seen_ |= bit;
    return true;
  }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception& error) {
    std::string_view what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error ...": the last part tells it.
    if (const auto colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
    return refuse(join_text("header is not valid JSON at its byte ", position, ": ", show_text(what)));
  }

 private:
  enum class State {
    begin,
    top,
    entry_value,
    entry,
    type,
    shape_begin,
    shape,
    offsets_begin,
    offsets,
    metadata_begin,
    metadata,
    metadata_value,
    end
  };

  bool refuse(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return false;
  }
  bool refuse_value(const std::string& found) {
    switch (state_) {
      case State::begin: return refuse(join_text("header is ", found, ", expected an object"));
      case State::entry_value: return refuse(join_text(where(), " is ", found, ", expected an object"));
      case State::type: return refuse(join_text(where(), " has as dtype ", found, ", expected text"));
      case State::shape_begin:
      case State::shape: return refuse(join_text(where(), " has in its shape ", found, ", expected unsigned numbers"));
      case State::offsets_begin:
      case State::offsets:
        return refuse(join_text(where(), " has in data_offsets ", found, ", expected two unsigned numbers"));
      default: return refuse(join_text("has in __metadata__ ", found, ", expected text"));
    }
  }
  std::string where() const { return "tensor " + show_text(entry_.name); }

  bool end_entry() {
    if (seen_ != 7) {
      return refuse(join_text(where(), " lacks ",
                              (seen_ & 1) == 0   ? "dtype"
                              : (seen_ & 2) == 0 ? "shape"
                                                 : "data_offsets"));
    }
    // Text is made for a refusal only: a header may have tens of thousands of entries.
    const auto range = [&] { return join_text(" has data_offsets [", entry_.begin, ",", entry_.end, "]"); };
    const auto shape = [&] {
      std::string text = " of shape (";
      for (const std::int64_t size : entry_.shape) text += join_text(text.back() == '(' ? "" : ",", size);
      return text + ")";
    };
    if (entry_.begin > entry_.end) return refuse(where() + range() + ": begin is above end");
    if (entry_.end > data_nbytes_) {
      return refuse(where() + range() + join_text(", past the end of ", data_nbytes_, " bytes of data"));
    }
    std::uint64_t nbytes = 0;
    if (!safetensors_nbytes(entry_.shape, entry_.type, nbytes)) {
      return refuse(where() + shape() + " needs more bytes than fit in 63 bits");
    }
    if (nbytes != entry_.nbytes()) {
      return refuse(where() + shape() + range() +
                    join_text(": ", entry_.nbytes(), " bytes, expected ", nbytes, " for ", name_of(entry_.type)));
    }
    header_.entries.push_back(std::move(entry_));
    state_ = State::top;
    return true;
  }

  SafetensorsHeader& header_;
  std::uint64_t data_nbytes_;
  State state_ = State::begin;
  TensorEntry entry_;
  unsigned seen_ = 0;  // bits: 1 dtype, 2 shape, 4 data_offsets
  int num_offsets_ = 0;
  bool has_metadata_ = false;
  std::string metadata_key_;
  std::string reason_;
};

// Sorts indices of entries and returns them; `less` compares two entries.
template <class Less>
std::vector<std::uint32_t> sorted_indices(const std::vector<TensorEntry>& entries, Less less) {
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return less(entries[a], entries[b]); });
  return order;
}

void check_ranges(const SafetensorsHeader& header, std::uint64_t data_nbytes, const std::string& path) {
  const auto by_range = sorted_indices(header.entries, [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const std::uint32_t i : by_range) {
    const TensorEntry& entry = header.entries[i];
    if (entry.begin != at) {
      throw IoError(
          path, join_text("tensor ", show_text(entry.name), " begins at byte ", entry.begin, " of the data, expected ",
                          at, entry.begin < at ? " (it overlaps another tensor)" : " (a gap)"));
    }
    at = entry.end;
  }
  if (at != data_nbytes) {
    throw IoError(path, join_text("has ", data_nbytes, " bytes of data, but its tensors end at byte ", at));
  }
}

}  // namespace

std::string show_text(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 32 && byte < 127 && c != '"' && c != '\\') {
      out += c;
    } else {
      out += "\\x";
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
    }
  }
  out += '"';
  if (text.size() > kMaxShown) out += join_text("... (", text.size(), " bytes)");
  return out;
}

std::string refuse_tensor_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kMaxSafetensorsNameNbytes) return join_text("is longer than ", kMaxSafetensorsNameNbytes, " bytes");
  if (name.find('\0') != std::string_view::npos) return "contains a NUL character";
  // Names become parts of paths in tools that unpack a file into a folder.
  if (name.front() == '/' || name.front() == '\\') return "is an absolute path";
  if (name.find("..") != std::string_view::npos) return "contains \"..\"";
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; };
  if (std::any_of(name.begin(), name.end(), is_control)) return "contains a control character";
  return "";
}

bool safetensors_nbytes(const std::vector<std::int64_t>& shape, SafetensorsType type, std::uint64_t& nbytes) noexcept {
  std::int64_t total = static_cast<std::int64_t>(size_of(type));
  bool overflow = false;
  bool zero = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return false;
    zero = zero || size == 0;
    overflow = __builtin_mul_overflow(total, size, &total) || overflow;
  }
  nbytes = zero ? 0 : static_cast<std::uint64_t>(total);
  return zero || !overflow;
}

std::uint64_t safetensors_header_nbytes(const std::uint8_t (&length)[8], std::uint64_t file_nbytes,
                                        const std::string& path) {
  std::uint64_t nbytes = 0;
  for (int i = 7; i >= 0; --i) nbytes = (nbytes << 8) | length[i];
  if (nbytes > file_nbytes - 8) {
    // The first bytes of another kind of file make a length that no header has.
    const char* const guess = nbytes > kMaxSafetensorsHeaderNbytes ? "is no safetensors file, or is damaged: " : "";
    throw IoError(path, join_text(guess, "header claims ", nbytes, " bytes, but the file has only ", file_nbytes - 8,
                                  " after the length"));
  }
  if (nbytes < 2) throw IoError(path, join_text("header claims ", nbytes, " bytes, expected at least 2"));
  if (nbytes > kMaxSafetensorsHeaderNbytes) {
    throw IoError(path, join_text("header claims ", nbytes, " bytes, the limit is ", kMaxSafetensorsHeaderNbytes));
  }
  return nbytes;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t file_nbytes, const std::string& path) {
  SafetensorsHeader header;
  header.data_begin = 8 + json.size();
  const std::uint64_t data_nbytes = file_nbytes - header.data_begin;
  if (json.empty() || json[0] != '{') {
    throw IoError(
        path, join_text("is no safetensors file: header begins with ", show_text(json.substr(0, 8)), ", expected {"));
  }
  // The parser takes a NUL for the end of the text and would not see what follows it.
  if (const auto nul = json.find('\0'); nul != std::string_view::npos) {
    throw IoError(path, join_text("header is not valid JSON: it has a raw NUL at its byte ", nul));
  }
  HeaderReader reader(header, data_nbytes);
  const bool complete = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  if (!complete) throw IoError(path, reader.reason().empty() ? "header is not valid" : reader.reason());

  header.entries.shrink_to_fit();
  header.name_order =
      sorted_indices(header.entries, [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < header.name_order.size(); ++i) {
    const TensorEntry& entry = header.entries[header.name_order[i]];
    if (entry.name == header.entries[header.name_order[i - 1]].name) {
      throw IoError(path, join_text("has tensor ", show_text(entry.name), " twice"));
    }
  }
  check_ranges(header, data_nbytes, path);
  return header;
}

}  // namespace heddle::detail
