// Case C16: a weight file is never trusted. Also round trips.
#include "engine/checkpoint/safetensors.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "engine/checkpoint/safetensors_header.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/contains.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::test;

namespace {

struct Attack {
  const char* what;
  std::string file;
  const char* reason;  // part of the message
};

std::string one(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }

const std::string kLong4 = "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]";

std::vector<Attack> attacks() {
  const auto f = [](const std::string& json, std::size_t data = 4) {
    return safetensors_bytes(json, std::string(data, 'd'));
  };
  const std::string deep(200000, '[');
  const std::string deep_objects = [] {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += "{\"a\":";
    return text;
  }();
  const std::string b = ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":";
  std::vector<Attack> list{
      {"empty file", "", "need at least 10 bytes, got 0"},
      {"short file", "abc", "need at least 10 bytes, got 3"},
      {"length only", std::string(8, '\0'), "header claims 0 bytes, expected at least 2"},
      {"length 2^63-1", little_endian64(0x7fffffffffffffffull) + "{}", "header claims 9223372036854775807 bytes"},
      {"length 2^64-4", little_endian64(0xfffffffffffffffcull) + "{}", "header claims 18446744073709551612 bytes"},
      {"length 2^64-1", little_endian64(0xffffffffffffffffull) + "{}", "but the file has only 2"},
      {"length beyond the file", little_endian64(3) + "{}", "header claims 3 bytes, but the file has only 2"},
      {"length above the limit", little_endian64(5u << 20) + std::string(5u << 20, ' '), "the limit is 4194304"},
      {"no object", f("[]"), "header begins with \"[]\""},
      {"space before the object", f(" {}", 0), "header begins with \" {}\""},
      {"byte-order mark", f("\xef\xbb\xbf{}", 0), "is no safetensors file"},
      {"number as header", f("12"), "is no safetensors file"},
      {"cut off JSON", f("{\"a\":{\"dtype\":\"F3"), "header is not valid JSON"},
      {"garbage after the object", f("{}x", 0), "header is not valid JSON"},
      {"NUL after the object", f(std::string("{}\0", 3), 0), "a raw NUL"},
      {"NUL and garbage after the object", f(std::string("{}\0garbage", 10), 0), "a raw NUL"},
      {"comment", f("{}/**/", 0), "header is not valid JSON"},
      {"entry is text", f("{\"a\":\"b\"}"), "tensor \"a\" is the text \"b\", expected an object"},
      {"entry is null", f("{\"a\":null}"), "tensor \"a\" is null"},
      {"entry is an array", f("{\"a\":[]}"), "tensor \"a\" is an array"},
      {"1000x1000 floats over 4 bytes", f(one("\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]")),
       "tensor \"a\" of shape (1000,1000) has data_offsets [0,4]: 4 bytes, expected 4000000 for F32"},
      {"begin above end", f(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]")), "begin is above end"},
      {"negative offset", f(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]")), "the negative number -4"},
      {"negative size", f(one("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]")), "the negative number -1"},
      {"two negative sizes", f(one("\"dtype\":\"F32\",\"shape\":[-1,-1],\"data_offsets\":[0,4]")), "negative"},
      {"fraction", f(one("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]")), "the number \"1.0\""},
      {"exponent", f(one("\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]")), "the number \"1e0\""},
      {"2^64", f(one("\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]")), "the number"},
      {"2^63", f(one("\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,4]")), "more than 63 bits"},
      {"text as size", f(one("\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]")), "the text \"1\""},
      {"true as size", f(one("\"dtype\":\"F32\",\"shape\":[true],\"data_offsets\":[0,4]")), "a boolean"},
      {"number as shape", f(one("\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]")), "in its shape a number"},
      {"number as dtype", f(one("\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]")), "has as dtype a number"},
      {"past the end", f(one("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]")), "past the end of 4 bytes"},
      {"far past the end",
       f(one("\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,9223372036854775807]")),
       "past the end of 4 bytes"},
      {"one offset", f(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]")), "has 1 data_offsets, expected 2"},
      {"three offsets", f(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]")), "more than two"},
      {"overlap", f("{\"a\":{" + kLong4 + "}" + b + "[2,6]}}", 6),
       "begins at byte 2 of the data, expected 4 (it overlaps"},
      {"same range twice", f("{\"a\":{" + kLong4 + "}" + b + "[0,4]}}"), "overlaps"},
      {"gap", f("{\"a\":{" + kLong4 + "}" + b + "[5,9]}}", 9), "begins at byte 5 of the data, expected 4 (a gap)"},
      {"gap at the begin", f(one("\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]")), "begins at byte 1"},
      {"bytes behind the last", f(one(kLong4), 5), "has 5 bytes of data, but its tensors end at byte 4"},
      {"data without tensors", f("{}", 1), "has 1 bytes of data"},
      {"product overflow", f(one("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,1],\"data_offsets\":[0,4]")),
       "needs more bytes than fit in 63 bits"},
      {"product overflow to 4 bytes",
       f(one("\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]")),
       "needs more bytes than fit in 63 bits"},
      {"unknown type", f(one("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]")),
       "has dtype \"F33\", expected one of F64 F32 F16"},
      {"lower-case type", f(one("\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]")), "has dtype \"f32\""},
      {"duplicate name",
       f("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
         "offsets\":[2,4]}}"),
       "has tensor \"a\" twice"},
      {"duplicate name by escape",
       f("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[2],"
         "\"data_offsets\":[2,4]}}"),
       "has tensor \"a\" twice"},
      {"duplicate field", f(one(kLong4 + ",\"dtype\":\"F32\"")), "has the field dtype twice"},
      {"unknown field", f(one(kLong4 + ",\"x\":1")), "unknown field \"x\""},
      {"missing dtype", f(one("\"shape\":[4],\"data_offsets\":[0,4]")), "lacks dtype"},
      {"missing shape", f(one("\"dtype\":\"F32\",\"data_offsets\":[0,4]")), "lacks shape"},
      {"missing offsets", f(one("\"dtype\":\"F32\",\"shape\":[1]")), "lacks data_offsets"},
      {"nested arrays", f("{\"a\":" + deep), "tensor \"a\" is an array"},
      {"nested shape", f(one("\"shape\":" + deep)), "in its shape an array"},
      {"nested objects", f(deep_objects), "unknown field \"a\""},
      {"nested offsets", f(one("\"data_offsets\":[[0,4]]")), "an array"},
      {"too many sizes", f(one("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1),
       "more than 8 sizes"},
      {"../ in a name", f("{\"../../etc/passwd\":{" + kLong4 + "}}"), "contains \"..\""},
      {"../ by escape", f("{\"\\u002e\\u002e\\u002fx\":{" + kLong4 + "}}"), "contains \"..\""},
      {"absolute name", f("{\"/etc/passwd\":{" + kLong4 + "}}"), "is an absolute path"},
      {"NUL in a name", f("{\"a\\u0000b\":{" + kLong4 + "}}"), "tensor name \"a\\x00b\" contains a NUL character"},
      {"raw NUL in a name", f(std::string("{\"a\0b\":{", 8) + kLong4 + "}}"), "a raw NUL"},
      {"escape code in a name", f("{\"\\u001b[31m\":{" + kLong4 + "}}"), "contains a control character"},
      {"empty name", f("{\"\":{" + kLong4 + "}}"), "is empty"},
      {"name of 2000 bytes", f("{\"" + std::string(2000, 'n') + "\":{" + kLong4 + "}}"), "longer than 1024 bytes"},
      {"bad UTF-8", f("{\"a\xff\":{" + kLong4 + "}}"), "header is not valid JSON"},
      {"cut off UTF-8", f("{\"a\xc3\":{" + kLong4 + "}}"), "header is not valid JSON"},
      {"overlong UTF-8", f("{\"a\xc0\xaf\":{" + kLong4 + "}}"), "header is not valid JSON"},
      {"lone surrogate", f("{\"a\\ud800\":{" + kLong4 + "}}"), "header is not valid JSON"},
      {"metadata is text", f("{\"__metadata__\":\"x\"}", 0), "has in __metadata__ the text \"x\""},
      {"metadata of a number", f("{\"__metadata__\":{\"x\":1}}", 0), "has in __metadata__ a number"},
      {"nested metadata", f("{\"__metadata__\":{\"x\":{}}}", 0), "has in __metadata__ an object"},
      {"metadata twice", f("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "has __metadata__ twice"},
      {"metadata item twice", f("{\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"}}", 0), "item of metadata twice"},
  };
  return list;
}

// Well-formed or nearly so, and as large as the limits let them be.
std::vector<Attack> large_headers() {
  const auto full = [](std::string json) {
    json.resize(kMaxSafetensorsHeaderNbytes, ' ');
    return safetensors_bytes(json, "");
  };
  const std::size_t room = kMaxSafetensorsHeaderNbytes;
  std::string entries = "{";
  std::string metadata = "{\"__metadata__\":{";
  for (int i = 0; entries.size() + 100 < room; ++i) {
    entries += (i > 0 ? ",\"" : "\"") + std::to_string(i) +
               "\":{\"dtype\":\"U8\",\"shape\":[0,1,1,1,1,1,1,1],\"data_offsets\":[0,0]}";
  }
  for (int i = 0; metadata.size() + 100 < room; ++i) metadata += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
  std::string sizes = "{\"a\":{\"shape\":[";
  while (sizes.size() + 10 < room) sizes += "0,";
  const std::string text(room - 100, 'x');
  return {
      {"entries", full(entries + "}"), ""},
      {"metadata", full(metadata + "}}"), "has more than 65536 items of metadata"},
      {"sizes", full(sizes), "more than 8 sizes"},
      {"one text", full("{\"__metadata__\":{\"a\":\"" + text + "\"}}"), ""},
      {"one key", full("{\"__metadata__\":{\"" + text + "\":\"a\"}}"), ""},
      {"one name", full("{\"" + text + "\":{}}"), "longer than 1024 bytes"},
      {"one number", full("{\"a\":{\"shape\":[" + std::string(room - 100, '9') + "]}}"), "not valid JSON"},
      {"unfinished text", full("{\"" + text), "not valid JSON"},
      {"brackets", full(std::string("{\"a\":") + std::string(room - 100, '[')), "is an array"},
  };
}

std::string read_everything(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  return std::to_string(file.entries().size()) + " entries";
}

}  // namespace

TEST_CASE("every attack on the header is refused with path and reason") {
  const TempFolder folder;
  const std::string path = folder / "attack.safetensors";
  for (const Attack& attack : attacks()) {
    INFO(attack.what);
    put_file(path, attack.file);
    const std::string from_file = message_of<IoError>([&] { SafetensorsFile::open(path); });
    REQUIRE(from_file.rfind(path + ": ", 0) == 0);
    contains(from_file, attack.reason);
    CHECK(from_file.size() < 600 + path.size());
    CHECK(from_file.find('\0') == std::string::npos);
    CHECK(from_file.find('\x1b') == std::string::npos);
    const auto bytes = to_bytes(attack.file);
    CHECK(message_of<IoError>([&] { SafetensorsFile::parse(bytes, path); }) == from_file);
  }
  CHECK(folder.num_files() == 1);
}

TEST_CASE("attacks cost less than a second and 64 MiB") {
  const TempFolder folder;
  const std::string path = folder / "attack.safetensors";
  std::vector<Attack> all = attacks();
  for (Attack& attack : large_headers()) all.push_back(std::move(attack));
  for (const Attack& attack : all) {
    put_file(path, attack.file);
    const ChildResult result = run_in_child([&] { return read_everything(path); });
    INFO(attack.what << ": " << result.text << "; " << result.seconds << " s, " << result.peak_growth_nbytes
                     << " bytes");
    CHECK(result.ended_well());
    CHECK(result.text.rfind(*attack.reason != '\0' ? "exception: " + path : "", 0) == 0);
    CHECK(result.text.find(attack.reason) != std::string::npos);
    CHECK(result.seconds < (kInstrumented ? 10 : 1));
    if (!kInstrumented) CHECK(result.peak_growth_nbytes < 64 << 20);
  }
}

TEST_CASE("what is no regular file is refused") {
  const TempFolder folder;
  contains(message_of<IoError>([&] { SafetensorsFile::open(folder.path()); }), "is a directory");
  contains(message_of<IoError>([&] { SafetensorsFile::open(folder / "none"); }), "No such file");
  contains(message_of<IoError>([&] { SafetensorsFile::open("/dev/zero"); }), "is a device");
}

TEST_CASE("a safetensors file of all types comes back as it was written") {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::vector<float> f32{1.5f, -2.0f, std::numeric_limits<float>::infinity(), 0.0f, 1e-40f, 3.0f};
  const std::vector<double> f64{0.1, -1e300};
  const std::vector<bfloat16> bf16{bfloat16(1.0f), bfloat16(-3.0f), bfloat16(1e30f)};
  const std::vector<std::int64_t> i64{-1, std::numeric_limits<std::int64_t>::min()};
  const std::vector<std::int32_t> i32{7};
  const std::vector<std::uint8_t> u8{0, 1, 255};
  const std::vector<TensorToWrite> tensors{
      {"z.weight", SafetensorsType::f32, {2, 3}, f32.data()},
      {"double", SafetensorsType::f64, {2}, f64.data()},
      {"half \"quoted\"", SafetensorsType::bf16, {3, 1}, bf16.data()},
      {"long", SafetensorsType::i64, {2}, i64.data()},
      {"int", SafetensorsType::i32, {}, i32.data()},
      {"bytes", SafetensorsType::u8, {3}, u8.data()},
      {"flags", SafetensorsType::boolean, {1, 2}, u8.data()},
      {"nothing", SafetensorsType::f32, {5, 0, 2}, nullptr},
      {"gr\xc3\xb6\xc3\x9f"
       "e",
       SafetensorsType::u8,
       {1},
       u8.data()},
  };
  const SafetensorsMetadata metadata{{"format", "pt"}, {"n\xc3\xa4me", "line\nbreak \"quoted\""}};
  write_safetensors(path, tensors, metadata);

  const SafetensorsFile file = SafetensorsFile::open(path);
  CHECK(file.metadata() == metadata);
  REQUIRE(file.entries().size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& entry = file.entries()[i];
    CHECK(entry.name == tensors[i].name);
    CHECK(entry.type == tensors[i].type);
    CHECK(entry.shape == tensors[i].shape);
    CHECK(file.find(entry.name) == &entry);
    std::vector<char> data(entry.nbytes() + 1, 'g');
    file.read(entry, data.data());
    CHECK(std::memcmp(data.data(), tensors[i].data == nullptr ? "" : tensors[i].data, entry.nbytes()) == 0);
    CHECK(data.back() == 'g');
  }
  CHECK(file.find("z") == nullptr);
  CHECK(file.find("zz") == nullptr);
  CHECK(file.find("") == nullptr);

  const std::string content = get_file(path);
  std::uint64_t header_nbytes = 0;
  std::memcpy(&header_nbytes, content.data(), 8);
  CHECK(header_nbytes % 8 == 0);
  write_safetensors(folder / "b", tensors, metadata);
  CHECK(get_file(folder / "b") == content);

  std::vector<float> floats(6);
  file.read_f32(*file.find("double"), floats.data());
  CHECK(floats[0] == 0.1f);
  CHECK(floats[1] == -std::numeric_limits<float>::infinity());
  file.read_f32(*file.find("half \"quoted\""), floats.data());
  CHECK(floats[1] == -3.0f);
  file.read_f32(*file.find("z.weight"), floats.data());
  CHECK(floats == f32);
  CHECK_THROWS_AS(file.read_f32(*file.find("long"), floats.data()), NotSupported);
}

TEST_CASE("a file without tensors is well-formed") {
  const TempFolder folder;
  write_safetensors(folder / "a", {});
  CHECK(SafetensorsFile::open(folder / "a").entries().empty());
  const auto bytes = to_bytes(safetensors_bytes("{\"__metadata__\":{}}   ", ""));
  CHECK(SafetensorsFile::parse(bytes, "x").metadata().empty());
}

TEST_CASE("tensors may stand in the header in another order than in the data") {
  const auto bytes =
      to_bytes(safetensors_bytes("{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},\"e\":{\"dtype\":"
                                 "\"F32\",\"shape\":[0],\"data_offsets\":[2,2]},"
                                 "\"a\":{\"data_offsets\":[0,2],\"shape\":[2],\"dtype\":\"BOOL\"}}",
                                 "xyz"));
  const SafetensorsFile file = SafetensorsFile::parse(bytes, "x");
  char value = 0;
  file.read(*file.find("b"), &value);
  CHECK(value == 'z');
  CHECK(file.entries()[0].name == "b");
}

TEST_CASE("half precision reads as floats, exactly") {
  const std::vector<std::uint16_t> half{0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff, 0x0001,
                                        0x03ff, 0x0400, 0x7c00, 0xfc00, 0x7e00};
  const std::vector<float> expected{0.0f,         -0.0f,    1.0f,     -2.0f,     65504.0f, 0x1p-24f,
                                    0x1.ff8p-15f, 0x1p-14f, INFINITY, -INFINITY, NAN};
  const TempFolder folder;
  const TensorToWrite tensor{"h", SafetensorsType::f16, {11}, half.data()};
  write_safetensors(folder / "a", {&tensor, 1});
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  std::vector<float> floats(11);
  file.read_f32(file.entries()[0], floats.data());
  for (std::size_t i = 0; i < 10; ++i) CHECK(std::memcmp(&floats[i], &expected[i], 4) == 0);
  CHECK(std::isnan(floats[10]));
}

TEST_CASE("a file that shrinks while it is read gives an error") {
  const TempFolder folder;
  const std::vector<float> data(100000, 1.0f);
  const TensorToWrite tensor{"w", SafetensorsType::f32, {100000}, data.data()};
  write_safetensors(folder / "a", {&tensor, 1});
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  std::filesystem::resize_file(folder / "a", 1000);
  std::vector<float> floats(100000);
  contains(message_of<IoError>([&] { file.read(file.entries()[0], floats.data()); }),
           (folder / "a") + ": became shorter while it was read: tensor \"w\" needs 400000 bytes");
}

TEST_CASE("a safetensors file cut at any length is refused") {
  const TempFolder folder;
  const std::vector<float> data{1, 2, 3, 4};
  const TensorToWrite tensor{"w", SafetensorsType::f32, {4}, data.data()};
  write_safetensors(folder / "a", {&tensor, 1}, {{"k", "v"}});
  const auto whole = to_bytes(get_file(folder / "a"));
  CHECK_NOTHROW(SafetensorsFile::parse(whole, "x"));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    INFO("cut at " << n);
    CHECK_THROWS_AS(SafetensorsFile::parse(std::span(whole).first(n), "x"), IoError);
  }
}

TEST_CASE("the writer refuses what the reader would refuse") {
  const TempFolder folder;
  const float data[4] = {};
  const auto reason = [&](std::vector<TensorToWrite> tensors, const SafetensorsMetadata& metadata = {}) {
    return message_of<InvalidArgument>([&] { write_safetensors(folder / "x", tensors, metadata); });
  };
  const SafetensorsType f32 = SafetensorsType::f32;
  contains(reason({{"a", f32, {1}, data}, {"a", f32, {1}, data}}), "tensor \"a\" is given twice");
  contains(reason({{"../a", f32, {1}, data}}), "contains \"..\"");
  contains(reason({{"", f32, {1}, data}}), "is empty");
  contains(reason({{"__metadata__", f32, {1}, data}}), "reserved");
  contains(reason({{"a\xff", f32, {1}, data}}), "not valid UTF-8");
  contains(reason({}, {{"a", "\xff"}}), "not valid UTF-8");
  contains(reason({{"a", f32, {-1}, data}}), "negative or too large");
  contains(reason({{"a", f32, {std::int64_t{1} << 62}, data}}), "negative or too large");
  contains(reason({{"a", f32, {1}, nullptr}}), "has no data");
  contains(reason({{"a", f32, {1, 1, 1, 1, 1, 1, 1, 1, 1}, data}}), "too many dimensions");
  contains(reason({}, {{"a", std::string(5 << 20, 'x')}}), "the limit is 4194304");
  CHECK(folder.num_files() == 0);
}
