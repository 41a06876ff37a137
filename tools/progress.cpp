#include "tools/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace heddle::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kBarInterval{100};
constexpr seconds kLineInterval{10};
constexpr int kLinesBeforeSlowdown = 100;

// 100 lines at ten seconds, then 10 at twenty, 10 at forty, ...: 180 lines cover 1.4 days.
seconds line_interval(int lines) {
  const int doublings = lines < kLinesBeforeSlowdown ? 0 : 1 + (lines - kLinesBeforeSlowdown) / 10;
  return kLineInterval * (std::int64_t{1} << std::min(doublings, 20));
}

std::string bar_of(double share, int width) {
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  return fmt::format("[{:#<{}}{:.<{}}]", "", filled, "", width - filled);
}

}  // namespace

std::string format_duration(double total) {
  if (!std::isfinite(total) || total < 0 || total > 1e9) return "-:--";
  const auto s = static_cast<std::int64_t>(std::llround(total));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string format_bar(const ProgressState& state, int width) {
  // In order of importance; a part is shown while it fits.
  const std::vector<std::string> parts = {
      fmt::format("epoch {}/{}", state.epoch, state.epochs), fmt::format("loss {:.4f}", state.loss),
      fmt::format("acc {:.2f}%", state.accuracy * 100), fmt::format("{} left", format_duration(state.seconds_left)),
      fmt::format("{:.0f} images/s", state.images_per_second)};
  std::size_t room = static_cast<std::size_t>(std::max(width, 1));
  std::string text = parts[0].substr(0, room);
  std::size_t shown = 1;
  std::size_t used = text.size();
  while (shown < parts.size() && used + 2 + parts[shown].size() <= room) used += 2 + parts[shown++].size();
  // The bar takes what is left, if that is enough to see something.
  const int bar_width = static_cast<int>(std::min<std::size_t>(room - used, 44)) - 4;
  if (bar_width >= 8) {
    const double share =
        static_cast<double>(state.batch) / static_cast<double>(std::max<std::int64_t>(state.batches, 1));
    text += "  " + bar_of(share, bar_width);
  }
  for (std::size_t i = 1; i < shown; ++i) text += "  " + parts[i];
  return text;
}

std::string format_plain(const ProgressState& state) {
  return fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  accuracy {:.2f}%  {:.0f} images/s  {} left", state.epoch,
                     state.epochs, state.batch, state.batches, state.loss, state.accuracy * 100,
                     state.images_per_second, format_duration(state.seconds_left));
}

void Progress::start_epoch() { lines_in_epoch_ = 0; }

void Progress::update(const ProgressState& state, Clock::time_point now) {
  if (console_.is_terminal()) {
    next_ = now + kBarInterval;
    // One column stays free: a full line would make some terminals wrap.
    console_.write(fmt::format("\r{}\x1b[K", format_bar(state, console_.width() - 1)));
    bar_visible_ = true;
    return;
  }
  const bool first = next_ == Clock::time_point{};
  if (!first) {
    console_.line(format_plain(state));
    ++lines_in_epoch_;
  }
  next_ = now + line_interval(lines_in_epoch_);
}

void Progress::clear() {
  if (bar_visible_) console_.write("\r\x1b[K");
  bar_visible_ = false;
}

}  // namespace heddle::tools
