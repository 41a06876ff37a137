// Fuzzes the IDX reader and its unpacking of gzip.
#include <cstdlib>

#include "datasets/idx_file.h"
#include "engine/core/error.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/support/gzip.h"

using namespace heddle::test;

std::vector<std::string> make_seeds() {
  const std::string labels = idx_header({10}) + noise_bytes(10);
  const std::string images = idx_header({3, 5, 4}) + std::string(60, '\7');
  const std::string any = idx_header({2, 1, 3, 2}) + noise_bytes(12);
  const std::string huge = idx_header({4294967295u, 28, 28}) + noise_bytes(100);
  std::vector<std::string> seeds;
  for (const std::string& plain : {labels, images, any, huge, std::string("<html>"), std::string()}) {
    seeds.push_back(plain);
    seeds.push_back(gzip(plain));
    seeds.push_back(gzip(plain, 0));
  }
  seeds.push_back(gzip(images.substr(0, 20)) + gzip(images.substr(20)));
  seeds.push_back(gzip(idx_header({100000}) + std::string(100000, '\0'), 9));
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto file = heddle::datasets::parse_idx({data, size}, "fuzz", {.max_nbytes = 1 << 22});
    std::uint64_t numel = 1;
    for (const std::int64_t dim : file.dims) numel *= static_cast<std::uint64_t>(dim);
    if (numel != file.data.size()) std::abort();
    if (file.payload_nbytes != numel + 4 + 4 * file.dims.size()) std::abort();
  } catch (const heddle::IoError&) {
  }
  return 0;
}
