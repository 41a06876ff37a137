// TensorBoard's events as bytes: the few messages of its protocol buffers that a training needs, encoded and read by
// hand. Used by event_file and training_events; knows nothing of files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::tools {

struct ScalarPoint {
  std::string tag;  // "loss/train": TensorBoard groups by what is before the '/'
  double value = 0.0;
};

// A picture of a tag; png: the whole file.
struct PicturePoint {
  std::string tag;
  std::int64_t height = 0;
  std::int64_t width = 0;
  int channels = 3;
  std::string png;
};

// Where an event stands. wall_time: seconds since 1970.
struct EventPlace {
  std::int64_t step = 0;
  double wall_time = 0.0;
};

// The first event of a file. Source of all three: tensorboard/compat/proto/event.proto and summary.proto.
std::string encode_version_event(double wall_time);
std::string encode_scalar_event(const EventPlace& place, const std::vector<ScalarPoint>& points);
std::string encode_picture_event(const EventPlace& place, const PicturePoint& picture);

// The step of an encoded event (0 if it names none, as the format has it); nothing if the bytes are no message.
std::optional<std::int64_t> step_of_event(std::string_view event);

}  // namespace heddle::tools
