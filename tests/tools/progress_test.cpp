#include "tools/progress.h"

#include <fcntl.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"

namespace heddle::tools {
namespace {

constexpr ProgressState kState{.epoch = 3,
                               .epochs = 10,
                               .batch = 50,
                               .batches = 200,
                               .loss = 0.51234,
                               .accuracy = 0.8125,
                               .images_per_second = 45678.4,
                               .seconds_left = 75};

}  // namespace

TEST_CASE("durations are written as clocks show them") {
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(59.6) == "1:00");
  CHECK(format_duration(3599) == "59:59");
  CHECK(format_duration(3723) == "1:02:03");
  CHECK(format_duration(-1) == "-:--");
  CHECK(format_duration(1.0 / 0.0) == "-:--");
}

TEST_CASE("the bar fits any width and shows the important parts first") {
  for (int width = 1; width <= 200; ++width) {
    INFO(width);
    CHECK(format_bar(kState, width).size() <= static_cast<std::size_t>(width));
  }
  CHECK(format_bar(kState, 12) == "epoch 3/10");
  CHECK(format_bar(kState, 30) == "epoch 3/10  loss 0.5123");
  CHECK(format_bar(kState, 79) == "epoch 3/10  [###..........]  loss 0.5123  acc 81.25%  1:15 left  45678 images/s");
  const std::string wide = format_bar(kState, 200);
  // A quarter of forty columns.
  CHECK(wide.find("[##########..............................]") != std::string::npos);
}

TEST_CASE("plain lines hold everything") {
  CHECK(format_plain(kState) == "epoch 3/10  step 50/200  loss 0.5123  accuracy 81.25%  45678 images/s  1:15 left");
}

TEST_CASE("into a file there is a line every ten seconds and at most 200 in the longest epoch") {
  const test::TempFolder folder;
  const int fd = ::open((folder / "out").c_str(), O_WRONLY | O_CREAT, 0600);
  Console console(fd);
  CHECK_FALSE(console.is_terminal());
  Progress progress(console);
  progress.start_epoch();
  Progress::Clock::time_point now{std::chrono::hours(1)};
  const auto begin = now;
  const auto lines = [&] {
    const std::string text = test::get_file(folder / "out");
    CHECK(text.find('\r') == std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK((text.empty() || text.back() == '\n'));
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto run_until = [&](std::chrono::seconds end) {
    for (; now < begin + end; now += std::chrono::seconds(1)) {
      if (progress.is_due(now)) progress.update(kState, now);
    }
  };
  run_until(std::chrono::seconds(11));
  CHECK(lines() == 1);
  run_until(std::chrono::seconds(301));
  CHECK(lines() == 30);
  run_until(std::chrono::hours(24));
  CHECK(lines() < 200);
  ::close(fd);
}

}  // namespace heddle::tools
