// Case C01: broken data files are refused early and clearly.
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "datasets/idx_file.h"
#include "datasets/unpacked_reader.h"
#include "engine/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/contains.h"
#include "tests/support/gzip.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::datasets;
using namespace heddle::test;

namespace {

// Grey values that pack a little, so that gzip really uses its codes.
std::string make_images() {
  std::string pixels = noise_bytes(7840);
  for (char& c : pixels) c = static_cast<char>(c & 0x1f);
  return idx_header({10, 28, 28}) + pixels;
}

const std::string kImages = make_images();
const std::string kLabels = idx_header({10}) + std::string("\0\1\2\3\4\5\6\7\x08\x09", 10);

// Writes content to a file and returns the message with which reading it is refused; empty if it loads.
std::string refusal(const std::string& content, const std::string& name = "train-images-idx3-ubyte.gz", int rank = 3) {
  const TempFolder folder;
  const std::string path = folder / name;
  put_file(path, content);
  std::string text = message_of<IoError>([&] { read_idx_file(path, {.rank = rank}); });
  if (!text.empty()) {
    CHECK(text.rfind(path + ": ", 0) == 0);
    CHECK(text.find(path, 1) == std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
    text.erase(0, path.size() + 2);
  }
  // The same from memory, so that the fuzzer sees what a file would.
  const auto bytes = to_bytes(content);
  const std::string from_memory = message_of<IoError>([&] { parse_idx(bytes, path, {.rank = rank}); });
  CHECK(from_memory == (text.empty() ? "" : path + ": " + text));
  return text;
}

}  // namespace

TEST_CASE("a plain and a packed IDX file give the same data") {
  const TempFolder folder;
  put_file(folder / "a", kImages);
  put_file(folder / "b.gz", gzip(kImages));
  put_file(folder / "packed-without-ending", gzip(kImages));
  put_file(folder / "plain.gz", kImages);
  const IdxFile a = read_idx_file(folder / "a", {.rank = 3});
  CHECK(a.dims == std::vector<std::int64_t>{10, 28, 28});
  CHECK(a.data == to_bytes(kImages.substr(16)));
  CHECK(a.payload_nbytes == 7856);
  CHECK(a.payload_crc32 == crc32_of(to_bytes(kImages)));
  CHECK_FALSE(a.gzip);
  for (const char* name : {"b.gz", "packed-without-ending", "plain.gz"}) {
    const IdxFile b = read_idx_file(folder / name);
    CHECK(b.path == folder / name);
    CHECK(b.data == a.data);
    CHECK(b.dims == a.dims);
    CHECK(b.payload_crc32 == a.payload_crc32);
    CHECK(b.payload_nbytes == a.payload_nbytes);
    CHECK(b.gzip == (std::string(name) != "plain.gz"));
  }
}

TEST_CASE("labels and sets of one, two and four sizes load") {
  CHECK(parse_idx(to_bytes(kLabels), "labels", {.rank = 1}).data == to_bytes(kLabels.substr(8)));
  CHECK(parse_idx(to_bytes(idx_header({2, 3}) + "abcdef"), "x").dims == std::vector<std::int64_t>{2, 3});
  CHECK(parse_idx(to_bytes(idx_header({1, 2, 1, 3}) + "abcdef"), "x").data.size() == 6);
  CHECK(parse_idx(to_bytes(gzip(idx_header({0}))), "x").data.empty());
  CHECK(parse_idx(to_bytes(idx_header({0, 4294967295u, 4294967295u})), "x").data.empty());
}

TEST_CASE("gzip files of several members load as one") {
  const std::string two = gzip(kImages.substr(0, 1000)) + gzip("") + gzip(kImages.substr(1000));
  CHECK(parse_idx(to_bytes(two), "x").data == to_bytes(kImages.substr(16)));
}

TEST_CASE("an HTML page with a gz name is refused as such") {
  std::string page = "<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head><body>";
  page.resize(727, ' ');
  const std::string text = refusal(page);
  contains(text, "expected an IDX file that begins with 00 00 08 03 (images)");
  contains(text, "found 3c 21 44 4f (an HTML or XML page)");
}

TEST_CASE("other things than IDX files are named") {
  contains(refusal(""), "is empty");
  contains(refusal(std::string(3, '\0')), "need at least 8 bytes, got 3");
  contains(refusal(std::string("PK\x03\x04 and more")), "a zip archive");
  contains(refusal(gzip(gzip(kImages))), "gzip inside gzip");
  contains(refusal("version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer");
  contains(refusal("just some text\n"), "a text file");
  contains(refusal(kLabels), "expected an IDX file that begins with 00 00 08 03 (images), found 00 00 08 01 (labels)");
  contains(refusal(kImages, "labels", 1), "00 00 08 01 (labels), found 00 00 08 03 (images)");
  contains(refusal(std::string("\0\0\x0d\x03", 4) + kImages.substr(4)), "elements are not unsigned bytes");
  contains(refusal(std::string("\0\0\x08\x05", 4) + std::string(99, '\1'), "x", 0), "found 00 00 08 05");
  contains(refusal(kImages.substr(0, 9)), "IDX header is cut off: need 16 bytes, got 9");
  contains(refusal(gzip(kImages.substr(0, 9))), "IDX header is cut off: need 16 bytes, got 9");
}

TEST_CASE("a gzip file cut anywhere is refused") {
  const std::string packed = gzip(kImages);
  const std::string half = refusal(packed.substr(0, packed.size() / 2));
  contains(half, "gzip data is cut off at byte " + std::to_string(packed.size() / 2) + ": need 7856 bytes, got ");
  REQUIRE(packed.size() > 4000);
  for (std::size_t n = 2; n < packed.size(); n += (n < 40 || n + 40 > packed.size()) ? 1 : 97) {
    INFO("cut at " << n);
    CHECK_FALSE(refusal(packed.substr(0, n)).empty());
  }
}

TEST_CASE("a flipped bit in the data, checksum or length of a gzip file is refused") {
  const std::string packed = gzip(kImages);
  int tried = 0;
  int refused = 0;
  for (std::size_t at = 10; at < packed.size(); at += (at + 10 > packed.size()) ? 1 : 131) {
    for (const int bit : {0, 3, 7}) {
      std::string changed = packed;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      INFO("bit " << bit << " of byte " << at << " of " << packed.size());
      // A few bits of a deflate stream are padding without meaning: then the data must be the same.
      try {
        const IdxFile file = parse_idx(to_bytes(changed), "x");
        CHECK(file.data == to_bytes(kImages.substr(16)));
      } catch (const IoError&) {
        ++refused;
      }
      ++tried;
    }
  }
  CHECK(tried > 100);
  CHECK(refused >= tried - 2);
  std::string length = packed;
  length[packed.size() - 4] = static_cast<char>(length[packed.size() - 4] ^ 1);
  contains(refusal(length), "incorrect length check");
  std::string checksum = packed;
  checksum[packed.size() - 8] = static_cast<char>(checksum[packed.size() - 8] ^ 1);
  contains(refusal(checksum), "incorrect data check");
}

TEST_CASE("fewer images than the header says are refused with both numbers") {
  const std::string nine_and_a_half = kImages.substr(0, 16 + 7448);
  contains(refusal(gzip(nine_and_a_half)), "is too short for 10 items: need 7856 bytes, got 7464");
  contains(refusal(nine_and_a_half), "is too short for 10 items: need 7856 bytes, got 7464");
}

TEST_CASE("extra bytes are refused") {
  contains(refusal(kImages + "x"), "is too long for 10 items: need 7856 bytes, got 7857");
  contains(refusal(gzip(kImages + "x")), "is too long for 10 items: need 7856 bytes, got at least 7857");
  contains(refusal(gzip(kImages) + gzip("x")), "is too long");
  contains(refusal(gzip(kImages) + "x"), "has 1 bytes of something else after the end of its gzip data");
  contains(refusal(gzip(kImages) + std::string(100, '\0')), "has 100 bytes of something else");
  CHECK_FALSE(refusal(gzip(kImages) + "\x1f").empty());
  CHECK_FALSE(refusal(gzip(kImages) + "\x1f\x8b").empty());
}

TEST_CASE("a header that claims too much costs neither time nor memory") {
  const TempFolder folder;
  const std::string huge = idx_header({4294967295u, 28, 28}) + noise_bytes(7840);
  const std::string zeros = idx_header({4294967295u, 1, 1}) + std::string(7840, '\0');
  put_file(folder / "plain", huge);
  put_file(folder / "huge.gz", gzip(huge));
  put_file(folder / "zeros.gz", gzip(zeros));
  put_file(folder / "overflow.gz", gzip(idx_header({4294967295u, 4294967295u, 4294967295u}) + "abc"));
  // Promises what a deflate stream of its size could hold, and holds a thousandth.
  put_file(folder / "plausible.gz", gzip(idx_header({60000, 28, 28}) + noise_bytes(50000)));
  // Unpacks to 64 MiB, of which the header wants 7,840 bytes.
  put_file(folder / "bomb.gz", gzip(idx_header({10, 28, 28}) + std::string(std::size_t{1} << 26, '\0')));
  for (const char* name : {"plain", "huge.gz", "zeros.gz", "overflow.gz", "plausible.gz", "bomb.gz"}) {
    const ChildResult result = run_in_child([&] {
      read_idx_file(folder / name, {.rank = 3});
      return std::string("loaded");
    });
    INFO(name << ": " << result.text << "; " << result.seconds << " s, " << result.peak_growth_nbytes << " bytes");
    CHECK(result.ended_well());
    CHECK(result.text.rfind("exception: " + (folder / name), 0) == 0);
    CHECK(result.seconds < (kInstrumented ? 10 : 1));
    if (!kInstrumented) CHECK(result.peak_growth_nbytes < 16 << 20);
  }
  contains(refusal(idx_header({4294967295u, 4294967295u, 4294967295u})),
           "header claims 4294967295 x 4294967295 x 4294967295 bytes of data, the limit is");
  contains(refusal(huge), "header claims 4294967295 x 28 x 28 = 3367254359280 bytes of data, the limit is");
  contains(refusal(zeros, "x", 0), "is too short for 4294967295 items: need 4294967311 bytes, got 7856");
}

TEST_CASE("the limit on unpacked bytes is an option") {
  CHECK_THROWS_AS(parse_idx(to_bytes(kImages), "x", {.max_nbytes = 7855}), IoError);
  CHECK_THROWS_AS(parse_idx(to_bytes(kImages), "x", {.max_nbytes = 3}), IoError);
  CHECK_NOTHROW(parse_idx(to_bytes(kImages), "x", {.max_nbytes = 7856}));
}

TEST_CASE("what cannot be read as a file is refused with the reason") {
  const TempFolder folder;
  const auto reason = [&](const std::string& path) { return message_of<IoError>([&] { read_idx_file(path); }); };
  contains(reason(folder / "none"), (folder / "none") + ": cannot be opened: No such file or directory");
  contains(reason(folder.path()), folder.path() + ": is a directory, expected a file");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  contains(reason(folder / "pipe"), "is a pipe");
  contains(reason("/dev/null"), "is a device");
  put_file(folder / "secret", kImages);
  REQUIRE(::chmod((folder / "secret").c_str(), 0) == 0);
  if (::geteuid() != 0) {
    contains(reason(folder / "secret"), "Permission denied");
  } else {
    // Root may read everything, so ask in a child that gives that up.
    const ChildResult result = run_in_child([&] {
      if (::chmod(folder.path().c_str(), 0755) != 0 || ::setuid(65534) != 0) return std::string("cannot change user");
      read_idx_file(folder / "secret");
      return std::string("loaded");
    });
    contains(result.text, "cannot be opened: Permission denied");
  }
}
