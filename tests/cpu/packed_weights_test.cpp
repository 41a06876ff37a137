// The cache of packed weights: what is packed anew, and what is given back.
#include "engine/cpu/packed_weights.h"

#include <cstring>
#include <optional>

#include "tests/support/catch.h"

using namespace heddle;
using cpu::PackedWeights;

namespace {

// A cache whose "packing" is copying.
struct Fixture {
  PackedWeights cache;

  std::shared_ptr<Storage> get(const Tensor& w, std::int64_t pass = 0) {
    return cache.get(w, {.pass = pass}, w.nbytes(), [&](void* to) { std::memcpy(to, w.raw_data(), w.nbytes()); });
  }
  float first(const Tensor& w) { return *static_cast<const float*>(get(w)->data()); }
};

}  // namespace

TEST_CASE("weights are packed once, and anew after any change of their memory") {
  Fixture f;
  Tensor w = Tensor::full({4, 3}, 1.0);
  float* const old_pointer = w.mutable_host_data<float>();
  CHECK(f.first(w) == 1);
  CHECK(f.first(w) == 1);
  CHECK(f.cache.packs() == 1);
  old_pointer[0] = 2;  // nobody is told
  CHECK(f.first(w) == 2);
  CHECK(f.cache.packs() == 2);
  f.get(w, 1);
  CHECK(f.cache.packs() == 3);
}

TEST_CASE("what was packed from weights that are gone is given back when new weights come") {
  Fixture f;
  std::optional<Tensor> large = Tensor::zeros({1 << 18});
  Tensor small = Tensor::full({8}, 3.0);
  f.get(*large);
  f.get(*large, 1);
  f.get(small);
  CHECK(f.cache.nbytes() >= 3 * large->nbytes());
  large.reset();
  const Tensor other = Tensor::full({16}, 4.0);
  CHECK(f.first(other) == 4);
  CHECK(f.cache.nbytes() == 2 * small.nbytes() + 2 * other.nbytes());
  // The weights that live keep theirs.
  const std::uint64_t packs = f.cache.packs();
  CHECK(f.first(small) == 3);
  CHECK(f.cache.packs() == packs);
}
