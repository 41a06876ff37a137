// Fuzzes the safetensors reader. The input is a header without its length, or, if it begins with 'F', a whole file.
#include <cstdlib>
#include <cstring>

#include "engine/checkpoint/safetensors.h"
#include "engine/core/error.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/support/safetensors_bytes.h"

using namespace heddle;

std::vector<std::string> make_seeds() {
  const std::string a = "\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}";
  const std::string b = "\"b.weight\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}";
  const std::string zero = "\"z\":{\"dtype\":\"F16\",\"shape\":[4,0],\"data_offsets\":[0,0]}";
  const std::string metadata = "\"__metadata__\":{\"format\":\"pt\",\"\\u00fc\":\"\\\\\"}";
  return {
      "{}",
      "{" + zero + "}",
      "{" + metadata + "," + a + "}" + "datadata",
      "{" + a + "," + b + "}    " + "datadata123",
      "{" + b + "," + a + "," + zero + "," + metadata + "}" + "datadata123",
      "F" + test::safetensors_bytes("{" + a + "," + b + "}", "datadata123"),
      "F" + test::little_endian64(1u << 31) + "{}",
      "{\"a\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
      "{\"a\":{\"dtype\":\"BF16\",\"shape\":[-1],\"data_offsets\":[3,1]}}",
  };
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
