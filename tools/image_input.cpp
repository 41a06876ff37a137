#include "tools/image_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "datasets/alpha.h"
#include "datasets/idx_file.h"
#include "engine/core/file.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

constexpr std::int64_t kDefaultIdxImages = 10;
constexpr double kBrightBorder = 127.5;

bool is_png(const std::string& path) {
  static constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
  char begin[8] = {};
  const std::size_t n = InputFile(path).read_at(0, begin, sizeof begin);
  return std::string_view(begin, n) == kSignature;
}

// A file of another kind should not be called a broken IDX file.
void refuse_other_kinds(const std::string& path) {
  char begin[4] = {};
  const std::string_view read(begin, InputFile(path).read_at(0, begin, sizeof begin));
  if (read.empty()) throw IoError(path, "is empty; expected a PNG image or an IDX file");
  // IDX, plain or packed by gzip.
  if (read[0] == '\0' || read.starts_with("\x1f\x8b")) return;
  std::string bytes;
  for (const char c : read) bytes += fmt::format(" {:02x}", static_cast<unsigned char>(c));
  throw IoError(path, "is neither a PNG image nor an IDX file: it begins with" + bytes);
}

double border_mean(const datasets::Image& image) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x) {
      if (y != 0 && x != 0 && y != image.height - 1 && x != image.width - 1) continue;
      for (std::int64_t c = 0; c < image.channels; ++c, ++count) {
        sum += image.pixels[static_cast<std::size_t>((y * image.width + x) * image.channels + c)];
      }
    }
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

// The image as the model wants it; what was done is appended to `changes`.
datasets::Image fit(const std::string& name, datasets::Image image, const ImageInputOptions& options,
                    std::string& changes) {
  const auto note = [&changes](const std::string& text) { changes += (changes.empty() ? "" : ", ") + text; };
  if (options.channels == 3 && image.channels == 4) {
    note("laid over black");
    image = datasets::without_alpha(std::move(image));
  }
  if (image.channels != options.channels) {
    if (options.channels != 1 && options.channels != 3) {
      throw UsageError(
          fmt::format("{}: the image has {} channels, the model expects {}", name, image.channels, options.channels));
    }
    const bool grey = options.channels == 1;
    note(fmt::format("made {} from {} channel{}", grey ? "grey" : "RGB", image.channels,
                     image.channels == 1 ? "" : "s"));
    image = grey ? datasets::to_grey(image) : datasets::to_rgb(image);
  }
  if (image.height != options.height || image.width != options.width) {
    note(fmt::format("resized from {}x{} to {}x{}", image.height, image.width, options.height, options.width));
    const bool as_trained = image.height == options.source_height && image.width == options.source_width;
    image = datasets::resize(image, options.height, options.width,
                             as_trained ? datasets::Shrink::linear : datasets::Shrink::area);
  }
  const bool bright = border_mean(image) > kBrightBorder;
  if (options.invert == Invert::on || (options.invert == Invert::automatic && bright)) {
    note(options.invert == Invert::on ? "inverted" : "inverted, since its border is bright (--invert off leaves it)");
    for (std::uint8_t& value : image.pixels) value = static_cast<std::uint8_t>(255 - value);
  }
  return image;
}

void add_image(ImageInput& input, const std::string& name, datasets::Image image, const ImageInputOptions& options) {
  std::string changes;
  datasets::Image fitted = fit(name, std::move(image), options, changes);
  if (!changes.empty()) input.notices.push_back(name + ": " + changes);
  input.images.push_back({name, std::move(fitted.pixels)});
}

ImageInput read_idx_images(const std::string& path, const ImageInputOptions& options) {
  refuse_other_kinds(path);
  const datasets::IdxFile file = datasets::read_idx_file(path);
  if (file.dims.size() != 3 && file.dims.size() != 4) {
    throw IoError(path, fmt::format("holds no images: expected sizes (N,H,W) or (N,H,W,C), found {} sizes; a file of "
                                    "labels has one",
                                    file.dims.size()));
  }
  ImageInput input;
  const std::int64_t count = file.dims[0];
  const ImageRange range = options.range.value_or(ImageRange{0, std::min(count, kDefaultIdxImages)});
  if (range.end > count) {
    throw UsageError(fmt::format("--range {}:{}: {} holds {} images", range.begin, range.end, path, count));
  }
  if (!options.range && count > kDefaultIdxImages) {
    input.notices.push_back(
        fmt::format("{}: the first {} of {} images; --range BEGIN:END chooses others", path, kDefaultIdxImages, count));
  }
  datasets::Image image{
      .height = file.dims[1], .width = file.dims[2], .channels = file.dims.size() == 4 ? file.dims[3] : 1};
  const std::int64_t nbytes = image.height * image.width * image.channels;
  // IDX images are what models are trained on, so they are inverted on request only.
  ImageInputOptions idx_options = options;
  if (idx_options.invert == Invert::automatic) idx_options.invert = Invert::off;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    image.pixels.assign(file.data.begin() + i * nbytes, file.data.begin() + (i + 1) * nbytes);
    add_image(input, fmt::format("{}[{}]", path, i), image, idx_options);
  }
  return input;
}

}  // namespace

ImageRange parse_range(std::string_view text) {
  const auto number = [&](std::string_view part) {
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || end != part.data() + part.size() || value < 0 || value > INT32_MAX) {
      throw UsageError(fmt::format("--range is '{}'; expected N or BEGIN:END, such as 5 or 5:8", text));
    }
    return value;
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {number(text), number(text) + 1};
  const ImageRange range{number(text.substr(0, colon)), number(text.substr(colon + 1))};
  if (range.begin >= range.end) throw UsageError(fmt::format("--range {}: the end must be above the begin", text));
  return range;
}

ImageInput read_images(const std::string& path, const ImageInputOptions& options) {
  if (!is_png(path)) return read_idx_images(path, options);
  if (options.range) throw UsageError(fmt::format("--range is for IDX files, but {} is a PNG image", path));
  ImageInput input;
  add_image(input, path, datasets::read_png(path), options);
  return input;
}

}  // namespace heddle::tools
