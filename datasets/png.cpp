// The only file that knows libpng; no_png.cpp stands in where there is none.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <utility>

#include "datasets/image_file.h"
#include "engine/core/file.h"

namespace heddle::datasets {
namespace {

constexpr std::uint64_t kMaxFileNbytes = std::uint64_t{512} << 20;
constexpr std::uint64_t kMaxDeflateRatio = 1032;
constexpr png_uint_32 kMaxSide = 1000000;
constexpr png_alloc_size_t kMaxChunkNbytes = 8 << 20;

// libpng reports an error by longjmp, which must not pass over a C++ object with a destructor. So the functions between
// setjmp and libpng (step_*) have only trivial locals; everything that owns memory lives in the caller of run().
struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const std::uint8_t* bytes = nullptr;
  std::size_t nbytes = 0;
  std::size_t position = 0;
  char reason[200] = "";
  // Set by step_header.
  png_uint_32 width = 0;
  png_uint_32 height = 0;
  int channels = 0;
  int passes = 0;
  std::size_t row_nbytes = 0;
  std::size_t file_row_nbytes = 0;
  // Used by step_row.
  png_bytep row = nullptr;
};

void on_error(png_structp png, png_const_charp message) {
  auto* decoder = static_cast<Decoder*>(png_get_error_ptr(png));
  std::strncpy(decoder->reason, message, sizeof decoder->reason - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep out, png_size_t nbytes) {
  auto* decoder = static_cast<Decoder*>(png_get_io_ptr(png));
  if (nbytes > decoder->nbytes - decoder->position) png_error(png, "file is cut off");
  std::memcpy(out, decoder->bytes + decoder->position, nbytes);
  decoder->position += nbytes;
}

void step_header(Decoder& d) {
  png_set_read_fn(d.png, &d, on_read);
  png_set_user_limits(d.png, kMaxSide, kMaxSide);
  png_set_chunk_malloc_max(d.png, kMaxChunkNbytes);
  png_set_chunk_cache_max(d.png, 100);
  png_read_info(d.png, d.info);
  d.width = png_get_image_width(d.png, d.info);
  d.height = png_get_image_height(d.png, d.info);
  d.file_row_nbytes = png_get_rowbytes(d.png, d.info);
  png_set_expand(d.png);  // palette to RGB, less than 8 bits to 8, transparent colour to alpha
  png_set_scale_16(d.png);
  d.passes = png_set_interlace_handling(d.png);
  png_read_update_info(d.png, d.info);
  d.channels = png_get_channels(d.png, d.info);
  d.row_nbytes = png_get_rowbytes(d.png, d.info);
}

void step_row(Decoder& d) { png_read_row(d.png, d.row, nullptr); }

void step_end(Decoder& d) { png_read_end(d.png, nullptr); }

// Calls one step and returns false if libpng gave up in it.
bool run(Decoder& decoder, void (*step)(Decoder&)) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  step(decoder);
  return true;
}

class DecoderOwner {
 public:
  DecoderOwner(std::span<const std::uint8_t> bytes, const std::string& name) : name_(name) {
    decoder.bytes = bytes.data();
    decoder.nbytes = bytes.size();
    decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, on_error, on_warning);
    if (decoder.png == nullptr) throw NotSupported("png: the libpng in use is not the one this was built with");
    decoder.info = png_create_info_struct(decoder.png);
    if (decoder.info == nullptr) {
      png_destroy_read_struct(&decoder.png, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  DecoderOwner(const DecoderOwner&) = delete;
  DecoderOwner& operator=(const DecoderOwner&) = delete;
  ~DecoderOwner() { png_destroy_read_struct(&decoder.png, &decoder.info, nullptr); }
  void must(void (*step)(Decoder&)) {
    if (!run(decoder, step)) {
      throw IoError(name_, join_text("is a broken PNG: libpng reports \"", decoder.reason, "\" near byte ",
                                     decoder.position, " of ", decoder.nbytes));
    }
  }
  Decoder decoder;

 private:
  const std::string& name_;
};

}  // namespace

bool png_supported() noexcept { return true; }

Image parse_png(std::span<const std::uint8_t> bytes, const std::string& name, const ImageReadOptions& options) {
  if (bytes.size() < 8 || png_sig_cmp(bytes.data(), 0, 8) != 0) {
    throw IoError(
        name, join_text("is no PNG image: the 8 bytes that begin one are not there; it has ", bytes.size(), " bytes"));
  }
  DecoderOwner owner(bytes, name);
  Decoder& decoder = owner.decoder;
  owner.must(step_header);
  Image image{decoder.height, decoder.width, decoder.channels, {}};
  if (image.height * image.width > options.max_pixels) {
    throw IoError(name, join_text("has ", image.width, "x", image.height, " pixels, the limit is ", options.max_pixels,
                                  " in all"));
  }
  // Before memory is taken: the file must be long enough to hold so many rows, however well they are packed.
  const std::uint64_t packed_nbytes = std::uint64_t{decoder.file_row_nbytes} * decoder.height;
  if (packed_nbytes / kMaxDeflateRatio > bytes.size()) {
    throw IoError(name, join_text("claims ", image.width, "x", image.height, " pixels, more than its ", bytes.size(),
                                  " bytes can hold"));
  }
  image.pixels.resize(decoder.row_nbytes * decoder.height);
  for (int pass = 0; pass < decoder.passes; ++pass) {
    for (std::size_t y = 0; y < decoder.height; ++y) {
      decoder.row = image.pixels.data() + y * decoder.row_nbytes;
      owner.must(step_row);
    }
  }
  owner.must(step_end);
  return image;
}

Image read_png(const std::string& path, const ImageReadOptions& options) {
  const std::string content = read_file(path, kMaxFileNbytes);
  return parse_png({reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}, path, options);
}

std::string encode_png(const Image& image) {
  HEDDLE_CHECK(image.channels >= 1 && image.channels <= 4 && image.height > 0 && image.width > 0,
               "encode_png: an image of ", image.height, "x", image.width, " pixels with ", image.channels,
               " channels");
  HEDDLE_CHECK(static_cast<std::int64_t>(image.pixels.size()) == image.height * image.width * image.channels,
               "encode_png: ", image.pixels.size(), " values for ", image.height, "x", image.width, "x",
               image.channels);
  static constexpr png_uint_32 kFormats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  png_image spec{};
  spec.version = PNG_IMAGE_VERSION;
  spec.width = static_cast<png_uint_32>(image.width);
  spec.height = static_cast<png_uint_32>(image.height);
  spec.format = kFormats[image.channels - 1];
  // An upper limit, so that one pass is enough.
  png_alloc_size_t nbytes = PNG_IMAGE_PNG_SIZE_MAX(spec);
  std::string png(nbytes, '\0');
  if (png_image_write_to_memory(&spec, png.data(), &nbytes, 0, image.pixels.data(), 0, nullptr) == 0) {
    throw Error(join_text("encode_png: libpng reports \"", spec.message, "\""));
  }
  png.resize(nbytes);
  return png;
}

}  // namespace heddle::datasets
