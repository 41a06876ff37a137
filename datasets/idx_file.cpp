#include "datasets/idx_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "datasets/unpacked_reader.h"

namespace heddle::datasets {
namespace {

constexpr int kMaxRank = 4;
constexpr std::size_t kChunkNbytes = 256 * 1024;

// What a file that is no IDX file seems to be, for the message; empty if there is nothing to say.
std::string guess_content(std::string_view head) {
  struct Known {
    std::string_view magic;
    const char* name;
  };
  static constexpr Known kKnown[] = {
      {std::string_view("PK\x03\x04"), "a zip archive"},
      {std::string_view("BZh"), "bzip2 data"},
      {std::string_view("\xfd"
                        "7zXZ"),
       "xz data"},
      {std::string_view("\x28\xb5\x2f\xfd"), "zstd data"},
      {std::string_view("\x1f\x8b"), "gzip inside gzip"},
      {std::string_view("\x89PNG"), "a PNG image"},
      {std::string_view("version https://git-lfs"), "a Git LFS pointer"},
  };
  for (const Known& known : kKnown) {
    if (head.substr(0, known.magic.size()) == known.magic) return known.name;
  }
  const auto text = head.find_first_not_of(" \t\r\n");
  if (text != std::string_view::npos && head[text] == '<') return "an HTML or XML page";
  const bool printable =
      std::all_of(head.begin(), head.end(), [](char c) { return c == '\n' || (c >= 32 && c < 127); });
  return printable && head.size() >= 8 ? "a text file" : "";
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    if (!text.empty()) text += ' ';
    text += "0123456789abcdef"[(c >> 4) & 15];
    text += "0123456789abcdef"[c & 15];
  }
  return text;
}

std::string expected_magic(int rank) {
  if (rank == 1) return "00 00 08 01 (labels)";
  if (rank == 3) return "00 00 08 03 (images)";
  return rank == 0 ? "00 00 08 01 to 00 00 08 04" : join_text("00 00 08 0", rank);
}

[[noreturn]] void refuse_magic(UnpackedReader& reader, std::string_view magic, int rank) {
  std::string head(magic);
  head.resize(64);
  head.resize(4 + reader.read(head.data() + 4, head.size() - 4));
  const bool is_idx = magic[0] == 0 && magic[1] == 0;
  std::string found = hex(magic);
  if (is_idx && magic[2] == 8 && magic[3] >= 1 && magic[3] <= kMaxRank) {
    found += magic[3] == 1 ? " (labels)" : magic[3] == 3 ? " (images)" : "";
  } else if (is_idx && magic[2] >= 9 && magic[2] <= 14) {
    found += " (elements are not unsigned bytes)";
  } else if (const std::string guess = guess_content(head); !guess.empty()) {
    found += join_text(" (", guess, ")");
  }
  throw IoError(reader.path(),
                join_text("expected an IDX file that begins with ", expected_magic(rank), ", found ", found));
}

// Reads the header and returns the bytes that the whole unpacked file must have.
std::uint64_t read_header(UnpackedReader& reader, const IdxReadOptions& options, std::vector<std::int64_t>& dims) {
  if (reader.packed_nbytes() == 0)
    throw IoError(reader.path(), "is empty, expected an IDX file: need at least 8 bytes, got 0");
  char magic[4];
  std::size_t n = reader.read(magic, 4);
  if (n < 4) throw IoError(reader.path(), join_text("is no IDX file: need at least 8 bytes, got ", n));
  const int rank = static_cast<unsigned char>(magic[3]);
  const bool known = magic[0] == 0 && magic[1] == 0 && magic[2] == 8 && rank >= 1 && rank <= kMaxRank;
  if (!known || (options.rank != 0 && rank != options.rank)) refuse_magic(reader, {magic, 4}, options.rank);

  std::uint8_t sizes[4 * kMaxRank];
  n = reader.read(sizes, static_cast<std::size_t>(4 * rank));
  const std::uint64_t header_nbytes = 4 + 4 * static_cast<std::uint64_t>(rank);
  if (n < static_cast<std::size_t>(4 * rank)) {
    throw IoError(reader.path(), join_text("IDX header is cut off: need ", header_nbytes, " bytes, got ", 4 + n));
  }
  std::uint64_t numel = 1;
  bool overflow = false;
  std::string product;
  for (int i = 0; i < rank; ++i) {
    const std::uint8_t* p = sizes + 4 * i;
    const std::uint32_t size =
        (std::uint32_t{p[0]} << 24) | (std::uint32_t{p[1]} << 16) | (std::uint32_t{p[2]} << 8) | p[3];
    dims.push_back(size);
    overflow = __builtin_mul_overflow(numel, std::uint64_t{size}, &numel) || overflow;
    product += join_text(i == 0 ? "" : " x ", size);
  }
  // A zero anywhere makes the product 0 although it went over before it.
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) numel = 0, overflow = false;
  if (overflow || numel > options.max_nbytes - std::min(options.max_nbytes, header_nbytes)) {
    throw IoError(reader.path(), join_text("header claims ", product, overflow ? "" : join_text(" = ", numel),
                                           " bytes of data, the limit is ", options.max_nbytes, "; the file has ",
                                           reader.packed_nbytes(), reader.gzip() ? " bytes packed" : " bytes"));
  }
  return header_nbytes + numel;
}

IdxFile read_all(UnpackedReader& reader, const IdxReadOptions& options) {
  IdxFile file;
  file.path = reader.path();
  file.gzip = reader.gzip();
  const std::uint64_t expected = read_header(reader, options, file.dims);
  reader.set_expected_nbytes(expected);
  const std::string items = join_text(" for ", file.dims[0], " items");
  // Both checks come before any memory is taken.
  if (!reader.gzip() && reader.packed_nbytes() != expected) {
    throw IoError(reader.path(), join_text(reader.packed_nbytes() < expected ? "is too short" : "is too long", items,
                                           ": need ", expected, " bytes, got ", reader.packed_nbytes()));
  }
  if (expected > reader.max_unpacked_nbytes()) {
    throw IoError(reader.path(),
                  join_text("is too short", items, ": need ", expected, " bytes, got ", reader.packed_nbytes(),
                            " packed bytes, which cannot hold more than ", reader.max_unpacked_nbytes()));
  }
  const std::uint64_t wanted = expected - reader.nbytes();
  std::vector<std::uint8_t> chunk(static_cast<std::size_t>(std::min<std::uint64_t>(wanted + 1, kChunkNbytes)));
  while (file.data.size() < wanted) {
    const std::size_t n = reader.read(
        chunk.data(), static_cast<std::size_t>(std::min<std::uint64_t>(wanted - file.data.size(), chunk.size())));
    if (n == 0) break;
    // Twice as much at a time, but never more than the header claims.
    if (file.data.capacity() - file.data.size() < n) {
      file.data.reserve(static_cast<std::size_t>(
          std::min<std::uint64_t>(wanted, std::max<std::uint64_t>(2 * (file.data.size() + n), kChunkNbytes))));
    }
    file.data.insert(file.data.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
  }
  if (file.data.size() < wanted) {
    throw IoError(reader.path(),
                  join_text("is too short", items, ": need ", expected, " bytes, got ", reader.nbytes()));
  }
  // Asking for one more byte also makes gzip verify its checksum and length.
  file.payload_crc32 = reader.crc32();
  std::uint8_t extra;
  if (reader.read(&extra, 1) != 0) {
    throw IoError(reader.path(),
                  join_text("is too long", items, ": need ", expected, " bytes, got at least ", expected + 1));
  }
  file.payload_nbytes = expected;
  return file;
}

}  // namespace

IdxFile read_idx_file(const std::string& path, const IdxReadOptions& options) {
  UnpackedReader reader(path);
  return read_all(reader, options);
}

IdxFile parse_idx(std::span<const std::uint8_t> bytes, const std::string& name, const IdxReadOptions& options) {
  UnpackedReader reader(bytes, name);
  return read_all(reader, options);
}

}  // namespace heddle::datasets
