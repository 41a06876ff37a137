#include "tools/events/event.h"

#include <bit>

namespace heddle::tools {
namespace {

// Wire types of protocol buffers.
enum Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Field numbers of the messages, in the order of event.proto and summary.proto.
namespace field {
enum Event : std::uint64_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum Summary : std::uint64_t { kValue = 1 };
enum Value : std::uint64_t { kTag = 1, kSimpleValue = 2, kImage = 4 };
enum Image : std::uint64_t { kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4 };
}  // namespace field

// Appends fields to the bytes of one message.
class MessageWriter {
 public:
  MessageWriter& number(std::uint64_t name, std::int64_t value) {
    key(name, kVarint);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  MessageWriter& real64(std::uint64_t name, double value) {
    key(name, kFixed64);
    little_endian(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  MessageWriter& real32(std::uint64_t name, float value) {
    key(name, kFixed32);
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  MessageWriter& bytes(std::uint64_t name, std::string_view value) {
    key(name, kBytes);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& str() const noexcept { return bytes_; }

 private:
  void key(std::uint64_t name, Wire wire) { varint(name << 3 | wire); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void little_endian(std::uint64_t value, int nbytes) {
    for (int i = 0; i < nbytes; ++i) bytes_ += static_cast<char>((value >> (8 * i)) & 0xff);
  }

  std::string bytes_;
};

MessageWriter begin_event(const EventPlace& place) {
  MessageWriter event;
  event.real64(field::kWallTime, place.wall_time).number(field::kStep, place.step);
  return event;
}

// Takes a varint from the front; nothing if there is none.
std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (bytes.empty()) return std::nullopt;
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string encode_version_event(double wall_time) {
  MessageWriter event;
  // The step is left out: nothing here belongs to one.
  return event.real64(field::kWallTime, wall_time).bytes(field::kFileVersion, "brain.Event:2").str();
}

std::string encode_scalar_event(const EventPlace& place, const std::vector<ScalarPoint>& points) {
  MessageWriter summary;
  for (const ScalarPoint& point : points) {
    MessageWriter value;
    value.bytes(field::kTag, point.tag).real32(field::kSimpleValue, static_cast<float>(point.value));
    summary.bytes(field::kValue, value.str());
  }
  return begin_event(place).bytes(field::kSummary, summary.str()).str();
}

std::string encode_picture_event(const EventPlace& place, const PicturePoint& picture) {
  MessageWriter image, value, summary;
  image.number(field::kHeight, picture.height)
      .number(field::kWidth, picture.width)
      .number(field::kColorspace, picture.channels)
      .bytes(field::kEncoded, picture.png);
  value.bytes(field::kTag, picture.tag).bytes(field::Value::kImage, image.str());
  summary.bytes(field::kValue, value.str());
  return begin_event(place).bytes(field::kSummary, summary.str()).str();
}

std::optional<std::int64_t> step_of_event(std::string_view event) {
  std::uint64_t step = 0;
  while (!event.empty()) {
    const auto key = take_varint(event);
    if (!key) return std::nullopt;
    std::uint64_t skipped = 0;
    switch (*key & 7) {
      case kVarint: {
        const auto value = take_varint(event);
        if (!value) return std::nullopt;
        if (*key >> 3 == field::kStep) step = *value;
        break;
      }
      case kFixed64: skipped = 8; break;
      case kFixed32: skipped = 4; break;
      case kBytes: {
        const auto length = take_varint(event);
        if (!length) return std::nullopt;
        skipped = *length;
        break;
      }
      default: return std::nullopt;
    }
    if (skipped > event.size()) return std::nullopt;
    event.remove_prefix(static_cast<std::size_t>(skipped));
  }
  return static_cast<std::int64_t>(step);
}

}  // namespace heddle::tools
