// Fuzzes the safetensors reader. The input is a header without its length, or, if it begins with 'F', a whole file.
#include <cstdlib>
#include <cstring>

#include "engine/checkpoint/safetensors.h"
#include "engine/core/error.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/support/safetensors_bytes.h"

using namespace heddle;

std::vector<std::string> make_seeds() {
  const std::string a = R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]})";
  const std::string b = R"("b.weight":{"dtype":"U8","shape":[3],"data_offsets":[8,11]})";
  const std::string zero = R"("z":{"dtype":"F16","shape":[4,0],"data_offsets":[0,0]})";
  const std::string metadata = R"("__metadata__":{"format":"pt","\u00fc":"\\"})";
  const auto file = [](const std::vector<std::string>& items, const std::string& rest) {
    std::string text = "{";
    for (const std::string& item : items) text.append(text.size() > 1 ? "," : "").append(item);
    return text.append("}").append(rest);
  };
  std::vector<std::string> seeds{
      "{}",
      file({zero}, ""),
      file({metadata, a}, "datadata"),
      file({a, b}, "    datadata123"),
      file({b, a, zero, metadata}, "datadata123"),
      R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
      R"({"a":{"dtype":"BF16","shape":[-1],"data_offsets":[3,1]}})",
  };
  seeds.push_back(test::safetensors_bytes(file({a, b}, ""), "datadata123").insert(0, 1, 'F'));
  seeds.push_back(test::little_endian64(1u << 31).insert(0, 1, 'F').append("{}"));
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> bytes;
  if (size > 0 && data[0] == 'F') {
    bytes.assign(data + 1, data + size);
  } else {
    // The header ends behind the last '}', so that the data grows with what follows.
    std::size_t header = size;
    while (header > 0 && data[header - 1] != '}' && data[header - 1] != ' ') --header;
    const std::string length = test::little_endian64(header);
    bytes.assign(length.begin(), length.end());
    bytes.insert(bytes.end(), data, data + size);
  }
  try {
    const SafetensorsFile file = SafetensorsFile::parse(bytes, "fuzz");
    std::uint64_t total = 0;
    for (const TensorEntry& entry : file.entries()) {
      total += entry.nbytes();
      if (entry.nbytes() > bytes.size()) std::abort();
      std::vector<char> out(entry.nbytes());
      file.read(entry, out.data());
      if (file.find(entry.name) != &entry) std::abort();
      const bool integers = !is_floating(dtype_for(entry.type).value_or(DType::f32));
      std::vector<float> floats(entry.numel());
      if (!integers) file.read_f32(entry, floats.data());
    }
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    if (8 + header + total != bytes.size()) std::abort();
  } catch (const IoError&) {
  }
  return 0;
}
