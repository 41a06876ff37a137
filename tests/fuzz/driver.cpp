// Runs a fuzzer without libFuzzer: replays the files given, or the seeds and random changes of them for some seconds.
//   fuzz_x [--seconds S] [--seed N] [FILE...]       fuzz_x --write-seeds DIR
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/core/random.h"
#include "tests/fuzz/fuzzer.h"

namespace {

void run(const std::string& input) {
  // A block of exactly this size, so that a sanitizer sees a read past its end.
  std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

// One to eight small changes: bits, bytes, interesting numbers, pieces removed, repeated or taken from another seed.
std::string change(std::string text, const std::vector<std::string>& seeds, heddle::Philox& random) {
  static const char* const kPieces[] = {"\xff\xff\xff\xff",
                                        "\x7f\xff\xff\xff",
                                        "-1",
                                        "18446744073709551615",
                                        "\"",
                                        "{",
                                        "[",
                                        "}",
                                        "]",
                                        ",",
                                        "..",
                                        "\\u0000",
                                        "1e9",
                                        "null",
                                        "\x1f\x8b\x08"};
  const auto place = [&](std::size_t n) {
    return static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(n + 1)));
  };
  for (std::uint32_t changes = 1 + random.below(8); changes > 0; --changes) {
    const std::size_t at = place(text.size());
    const std::size_t n = place(std::min<std::size_t>(text.size() - at, 64));
    switch (random.below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random.below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(random.below(256));
        break;
      case 2: text.erase(at, n); break;
      case 3: text.insert(at, text.substr(place(text.size()), n)); break;
      case 4: text.insert(at, kPieces[random.below(static_cast<std::uint32_t>(std::size(kPieces)))]); break;
      case 5: {
        const std::string& other = seeds[random.below(static_cast<std::uint32_t>(seeds.size()))];
        if (!other.empty()) text.replace(at, n, other.substr(place(other.size()), 64));
        break;
      }
      default: text.resize(at); break;
    }
    if (text.size() > 65536) text.resize(65536);
  }
  return text;
}

int write_seeds(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : make_seeds()) {
    std::ofstream out(folder + "/seed-" + std::to_string(number++), std::ios::binary);
    out << seed;
    if (!out.flush()) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 3;
  std::uint64_t seed = 1;
  bool replayed = false;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--seconds") == 0 && has_value) {
      seconds = std::atof(argv[++i]);
    } else if (std::strcmp(argv[i], "--seed") == 0 && has_value) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--write-seeds") == 0 && has_value) {
      return write_seeds(argv[++i]);
    } else {
      std::ifstream in(argv[i], std::ios::binary);
      run({std::istreambuf_iterator<char>(in), {}});
      replayed = true;
    }
  }
  if (replayed) return 0;
  const std::vector<std::string> seeds = make_seeds();
  for (const std::string& input : seeds) run(input);
  heddle::Philox random(seed);
  long runs = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
    for (int i = 0; i < 100; ++i, ++runs) {
      run(change(seeds[random.below(static_cast<std::uint32_t>(seeds.size()))], seeds, random));
    }
  }
  std::printf("%zu seeds and %ld random changes, seed %llu\n", seeds.size(), runs,
              static_cast<unsigned long long>(seed));
  return 0;
}
