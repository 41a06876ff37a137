#include "datasets/unpacked_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <vector>

namespace heddle::datasets {
namespace {

constexpr std::size_t kPackedChunkNbytes = 64 * 1024;
constexpr std::size_t kMaxZlibNbytes = std::size_t{1} << 30;  // zlib counts in unsigned int
constexpr std::uint64_t kMaxDeflateRatio = 1032;              // 258 bytes from 2 bits, at the very best

std::uint32_t add_to_crc32(std::uint32_t crc, const std::uint8_t* data, std::size_t nbytes) {
  while (nbytes > 0) {
    const std::size_t n = std::min(nbytes, kMaxZlibNbytes);
    crc = static_cast<std::uint32_t>(::crc32(crc, data, static_cast<uInt>(n)));
    data += n;
    nbytes -= n;
  }
  return crc;
}

}  // namespace

// The bytes as they are on the disk.
struct UnpackedReader::Source {
  std::optional<InputFile> file;
  std::span<const std::uint8_t> memory;
  std::uint64_t position = 0;

  std::uint64_t nbytes() const { return file ? file->nbytes() : memory.size(); }
  std::size_t read_at(std::uint64_t offset, void* data, std::size_t n) const {
    if (file) return file->read_at(offset, data, n);
    if (offset >= memory.size()) return 0;
    n = std::min(n, memory.size() - static_cast<std::size_t>(offset));
    if (n > 0) std::memcpy(data, memory.data() + offset, n);
    return n;
  }
  bool is_gzip() const {
    std::uint8_t magic[2];
    return read_at(0, magic, 2) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  }
};

struct UnpackedReader::Inflater {
  z_stream stream{};
  std::vector<std::uint8_t> packed = std::vector<std::uint8_t>(kPackedChunkNbytes);
  bool in_member = false;

  Inflater() {
    // 16 + MAX_WBITS: gzip framing only; zlib itself then verifies checksum and length of each member.
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

UnpackedReader::UnpackedReader(const std::string& path) : path_(path), source_(std::make_unique<Source>()) {
  source_->file.emplace(path);
  if (source_->is_gzip()) inflater_ = std::make_unique<Inflater>();
}

UnpackedReader::UnpackedReader(std::span<const std::uint8_t> bytes, std::string name)
    : path_(std::move(name)), source_(std::make_unique<Source>()) {
  source_->memory = bytes;
  if (source_->is_gzip()) inflater_ = std::make_unique<Inflater>();
}

UnpackedReader::~UnpackedReader() = default;

bool UnpackedReader::gzip() const noexcept { return inflater_ != nullptr; }

std::uint64_t UnpackedReader::packed_nbytes() const noexcept { return source_->nbytes(); }

std::uint64_t UnpackedReader::max_unpacked_nbytes() const noexcept {
  const std::uint64_t packed = packed_nbytes();
  if (!gzip()) return packed;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  return packed > kMax / kMaxDeflateRatio ? kMax : packed * kMaxDeflateRatio;
}

std::size_t UnpackedReader::read(void* data, std::size_t nbytes) {
  auto* out = static_cast<std::uint8_t*>(data);
  std::size_t done = 0;
  while (done < nbytes) {
    const std::size_t n = gzip() ? inflate_some(out + done, nbytes - done) : read_packed(out + done, nbytes - done);
    if (n == 0) break;
    crc32_ = add_to_crc32(crc32_, out + done, n);
    nbytes_ += n;
    done += n;
  }
  return done;
}

std::size_t UnpackedReader::read_packed(void* data, std::size_t nbytes) {
  const std::size_t n = source_->read_at(source_->position, data, nbytes);
  source_->position += n;
  return n;
}

// Up to nbytes of unpacked data; 0 only at the verified end of the file.
std::size_t UnpackedReader::inflate_some(void* data, std::size_t nbytes) {
  z_stream& z = inflater_->stream;
  const std::size_t room = std::min(nbytes, kMaxZlibNbytes);
  z.next_out = static_cast<Bytef*>(data);
  z.avail_out = static_cast<uInt>(room);
  while (z.avail_out == room) {
    if (z.avail_in == 0) {
      z.next_in = inflater_->packed.data();
      z.avail_in = static_cast<uInt>(read_packed(inflater_->packed.data(), kPackedChunkNbytes));
    }
    if (z.avail_in == 0) {
      if (inflater_->in_member) fail_cut_off();
      return 0;  // the last member was complete
    }
    if (!inflater_->in_member) {
      // RFC 1952 lets members follow each other; anything else after a member does not belong to the file.
      if (source_->position > z.avail_in && *z.next_in != 0x1f) {
        throw IoError(path_, join_text("has ", source_->nbytes() - (source_->position - z.avail_in),
                                       " bytes of something else after the end of its gzip data"));
      }
      inflater_->in_member = true;
    }
    const int result = inflate(&z, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      inflater_->in_member = false;
      inflateReset(&z);
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      const std::string reason = z.msg != nullptr ? z.msg : join_text("zlib error ", result);
      throw IoError(
          path_, join_text("is damaged: gzip reports \"", reason, "\" near byte ", source_->position - z.avail_in,
                           " of ", source_->nbytes(), ", after unpacking ", nbytes_ + (room - z.avail_out), " bytes"));
    }
  }
  return room - z.avail_out;
}

void UnpackedReader::fail_cut_off() const {
  std::string text = join_text("gzip data is cut off at byte ", source_->position);
  if (expected_nbytes_ > 0) {
    text += join_text(": need ", expected_nbytes_, " bytes, got ", nbytes_);
  } else {
    text += join_text(", after unpacking ", nbytes_, " bytes");
  }
  throw IoError(path_, text);
}

std::uint32_t crc32_of(std::span<const std::uint8_t> bytes) { return add_to_crc32(0, bytes.data(), bytes.size()); }

}  // namespace heddle::datasets
