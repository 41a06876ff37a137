// What a training shows: event records, the pictures in them, and which mistakes they show.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tools/base64.h"
#include "tools/events/crc32c.h"
#include "tools/events/event.h"
#include "tools/events/event_file.h"
#include "tools/pictures/canvas.h"
#include "tools/pictures/evaluation_pictures.h"
#include "tools/pictures/mistakes.h"

namespace heddle::test {
namespace {

using tools::Canvas;
using tools::Colour;

Colour pixel(const datasets::Image& image, std::int64_t y, std::int64_t x) {
  const auto* const at = image.pixels.data() + (y * image.width + x) * 3;
  return {at[0], at[1], at[2]};
}

tools::ModelDescription description_of(std::int64_t classes) {
  tools::ModelDescription description;
  description.num_classes = classes;
  return description;
}

}  // namespace

TEST_CASE("checksums are those of the published examples") {
  // RFC 3720, B.4, and the check value of the CRC catalogue.
  CHECK(tools::crc32c("") == 0);
  CHECK(tools::crc32c("123456789") == 0xe3069283);
  CHECK(tools::crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(tools::crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  // 0xe3069283 rotated right by 15 bits is 0x2507c60d.
  CHECK(tools::masked_crc32c("123456789") == 0x2507c60dU + 0xa282ead8U);
}

TEST_CASE("the step of an event is read back, and no message is told from one") {
  for (const std::int64_t step :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{127}, std::int64_t{128}, std::int64_t{1} << 40}) {
    const std::string event = tools::encode_scalar_event({.step = step, .wall_time = 1.5}, {{"loss/train", 0.25}});
    CHECK(tools::step_of_event(event) == step);
    for (std::size_t length = 1; length < event.size(); ++length) {
      const auto found = tools::step_of_event(event.substr(0, length));
      // A cut between two fields leaves a message: one that has the step already, or has none yet.
      if (found) CHECK((*found == step || *found == 0));
    }
  }
  CHECK(tools::step_of_event(tools::encode_version_event(2.0)) == 0);
  CHECK_FALSE(tools::step_of_event("\xff\xff\xff"));
  CHECK_FALSE(
      tools::step_of_event("\x2a\x05"
                           "abc"));
  CHECK_FALSE(tools::step_of_event("\x0f"));
}

TEST_CASE("an event has the bytes that the protocol buffers' description gives") {
  const std::string event = tools::encode_scalar_event({.step = 300, .wall_time = 1.0}, {{"a", 1.0}});
  const std::string expected(
      "\x09\0\0\0\0\0\0\xf0\x3f"  // wall_time: 1, double 1.0
      "\x10\xac\x02"              // step: 2, varint 300
      "\x2a\x0a"                  // summary: 5, 10 bytes
      "\x0a\x08"                  // value: 1, 8 bytes
      "\x0a\x01"
      "a"                  // tag: 1
      "\x15\0\0\x80\x3f",  // simple_value: 2, float 1.0
      9 + 3 + 2 + 2 + 3 + 5);
  CHECK(event == expected);
}

TEST_CASE("event files of one folder are in the order in which they were begun") {
  const TempFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 4; ++i) paths.push_back(tools::EventFile(folder.path()).path());
  CHECK(std::is_sorted(paths.begin(), paths.end()));
  CHECK(std::unique(paths.begin(), paths.end()) == paths.end());
}

TEST_CASE("bytes in base64 are those of the examples of its description") {
  // RFC 4648, section 10.
  const std::pair<const char*, const char*> rows[] = {{"", ""},
                                                      {"f", "Zg=="},
                                                      {"fo", "Zm8="},
                                                      {"foo", "Zm9v"},
                                                      {"foob", "Zm9vYg=="},
                                                      {"fooba", "Zm9vYmE="},
                                                      {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : rows) {
    CHECK(tools::to_base64(bytes) == text);
    CHECK(tools::is_base64(text));
  }
  CHECK(tools::to_base64("\xff\xfe\xfd") == "//79");
  for (const char* text : {"Zg=", "Zg", "Z===", "====", "Zm9\"", "Zm9<", "Zg==Zg=="})
    CHECK_FALSE(tools::is_base64(text));
}

TEST_CASE("a canvas clips what is outside, and writes letters of three by five pixels") {
  Canvas canvas(12, 20, {1, 2, 3});
  canvas.fill(-5, -5, 7, 7, {9, 9, 9});
  canvas.fill(10, 18, 50, 50, {8, 8, 8});
  CHECK(pixel(canvas.image(), 1, 1) == Colour{9, 9, 9});
  CHECK(pixel(canvas.image(), 2, 2) == Colour{1, 2, 3});
  CHECK(pixel(canvas.image(), 11, 19) == Colour{8, 8, 8});
  canvas.write(4, 4, "t", {255, 0, 0}, 1);
  // A bar above, a stem below.
  for (int x = 4; x < 7; ++x) CHECK(pixel(canvas.image(), 4, x) == Colour{255, 0, 0});
  CHECK(pixel(canvas.image(), 8, 5) == Colour{255, 0, 0});
  CHECK(pixel(canvas.image(), 8, 4) == Colour{1, 2, 3});
  CHECK(Canvas::text_width("", 2) == 0);
  CHECK(Canvas::text_width("ab", 2) == 14);
}

TEST_CASE("pictures on a canvas are enlarged without a blur, and those with more pixels shrink") {
  const datasets::Image small{2, 2, 1, {0, 50, 100, 200}};
  Canvas canvas(8, 8, {0, 0, 0});
  canvas.draw(0, 0, 8, small);
  CHECK(pixel(canvas.image(), 3, 3) == Colour{0, 0, 0});
  CHECK(pixel(canvas.image(), 3, 4) == Colour{50, 50, 50});
  CHECK(pixel(canvas.image(), 7, 7) == Colour{200, 200, 200});
  Canvas tiny(1, 1, {0, 0, 0});
  tiny.draw(0, 0, 1, small);
  // (0 + 50 + 100 + 200) / 4
  CHECK(pixel(tiny.image(), 0, 0) == Colour{88, 88, 88});
  Canvas colours(1, 1, {0, 0, 0});
  colours.draw(0, 0, 1, {1, 1, 4, {10, 20, 30, 40}});
  CHECK(pixel(colours.image(), 0, 0) == Colour{10, 20, 30});
}

TEST_CASE("the worst mistakes are the misclassified images with the largest loss") {
  tools::Evaluation evaluation{.confusion = data::ConfusionMatrix(3)};
  evaluation.labels = {0, 1, 2, 0, 1};
  evaluation.predictions = {0, 2, 1, 1, 0};
  evaluation.losses = {9.0F, 2.0F, 3.0F, 2.0F, 1.0F};
  const data::ResidentDataset images({0, 1, 2, 3, 4}, {0, 1, 2, 0, 1}, 1, 1, 1, 3, Device::cpu());
  const auto worst = tools::worst_mistakes(evaluation, images, 3);
  REQUIRE(worst.size() == 3);
  // Of images 1 and 3, whose losses are equal, the first one comes first.
  CHECK((worst[0].index == 2 && worst[1].index == 1 && worst[2].index == 3));
  CHECK((worst[1].label == 1 && worst[1].prediction == 2 && worst[1].loss == 2.0));
  CHECK(worst[2].image.pixels == std::vector<std::uint8_t>{3});
  CHECK(tools::worst_mistakes(evaluation, images, 100).size() == 4);
}

TEST_CASE("a confusion matrix of any number of classes is a picture whose darkest cells hold most") {
  for (const std::int64_t classes : {1, 2, 10, 100, 256}) {
    data::ConfusionMatrix confusion(classes);
    for (std::int64_t i = 0; i < classes; ++i) {
      const std::int64_t hit[] = {i};
      confusion.add(hit, hit);
    }
    const datasets::Image image = tools::draw_confusion(confusion, description_of(classes));
    CHECK(image.pixels.size() == static_cast<std::size_t>(image.height * image.width * 3));
    CHECK(std::max(image.height, image.width) < 1100);
    // The lower right corner of the last cell, whose row is all on the diagonal, and its left neighbour's.
    const std::int64_t cell = std::clamp<std::int64_t>(900 / classes, 1, 44);
    CHECK(pixel(image, image.height - 7, image.width - 7) == Colour{8, 48, 107});
    if (classes > 1) CHECK(pixel(image, image.height - 7, image.width - 7 - cell) == Colour{255, 255, 255});
  }
}

TEST_CASE("a sheet has a place for each mistake, in rows of six") {
  const tools::Mistake mistake{.index = 0, .label = 1, .prediction = 2, .loss = 1.0, .image = {1, 1, 1, {77}}};
  const datasets::Image one = tools::draw_mistakes({mistake}, description_of(10));
  const datasets::Image seven = tools::draw_mistakes(std::vector(7, mistake), description_of(10));
  CHECK(one.width == 88 + 12);
  CHECK(seven.width == 6 * 94 + 6);
  CHECK(seven.height == 2 * (one.height - 6) + 6);
  CHECK(pixel(seven, 6, 6) == Colour{77, 77, 77});
  CHECK(pixel(seven, one.height, 6 + 87) == Colour{77, 77, 77});
  CHECK(pixel(seven, one.height, 6 + 94) == Colour{255, 255, 255});
}

}  // namespace heddle::test
