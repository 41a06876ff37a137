// A difference of one bit between replicas is found, wherever it is, and named.
#include "nccl_comm/drift_monitor.h"

#include <set>

#include "engine/core/bit_hash.h"
#include "engine/core/parallel.h"
#include "engine/optim/adam.h"
#include "models/model_list.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"

using namespace heddle;
using comm::Communicator;

namespace {

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};

void flip_bit(Tensor tensor, std::int64_t element, int bit) {
  std::vector<float> values = tensor.to_vector<float>();
  auto* const bits = reinterpret_cast<unsigned char*>(values.data() + element);
  bits[bit / 8] = static_cast<unsigned char>(bits[bit / 8] ^ (1u << (bit % 8)));
  tensor.copy_from(Tensor::from_values(values, tensor.shape()));
}

// What each rank is told when change() has had a rank's optimiser.
std::vector<std::string> compare(int ranks, Device device, const std::function<void(int, optim::Adam&)>& change) {
  testing::RankResults results(ranks);
  comm::run_rank_threads(ranks, kPatient, [&](Communicator& c) {
    const auto model = models::make_model("lenet", {});
    Philox random(1);
    model->reset_parameters(random);
    model->to(device);
    nn::ParameterBuffer buffer(*model);
    optim::Adam adam(buffer, 0.01);
    adam.average_weights(0.9);
    change(c.rank(), adam);
    results.add(c.rank(), comm::compare_replicas(c, comm::replica_state(adam)));
  });
  return results.texts();
}

}  // namespace

TEST_CASE("every bit and every length counts in the hash, and threads do not") {
  for (const std::size_t nbytes : {0, 1, 7, 8, 31, 32, 33, 100}) {
    std::vector<unsigned char> bytes(nbytes, 0);
    std::set<std::uint64_t> seen{hash_bits(bytes.data(), nbytes)};
    for (std::size_t bit = 0; bit < 8 * nbytes; ++bit) {
      bytes[bit / 8] = static_cast<unsigned char>(1u << (bit % 8));
      seen.insert(hash_bits(bytes.data(), nbytes));
      bytes[bit / 8] = 0;
    }
    CHECK(seen.size() == 8 * nbytes + 1);
  }
  const std::vector<float> zeros(1'000'003, 0.f);
  std::vector<float> values = zeros;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 977) * 0.25f;
  std::set<std::uint64_t> hashes;
  for (const int threads : {1, 2, 7}) {
    const ThreadLimit limit(threads);
    hashes.insert(hash_bits(values.data(), values.size() * sizeof(float)));
  }
  CHECK(hashes.size() == 1);
  // Neighbouring chunks, exchanged.
  std::swap_ranges(values.begin(), values.begin() + 16384, values.begin() + 16384);
  hashes.insert(hash_bits(values.data(), values.size() * sizeof(float)));
  hashes.insert(hash_bits(zeros.data(), zeros.size() * sizeof(float)));
  hashes.insert(hash_bits(zeros.data(), zeros.size() * sizeof(float) - 4));
  CHECK(hashes.size() == 4);
}

TEST_CASE("one bit on one rank is found and named, the same on all ranks") {
  struct Row {
    const char* found;
    std::function<void(optim::Adam&)> change;
  };
  const std::vector<Row> rows{
      {"weights of '0.weight'", [](optim::Adam& adam) { flip_bit(adam.parameters().data(), 3, 0); }},
      {"weights of '0.bias'", [](optim::Adam& adam) { flip_bit(adam.parameters().data(), 6 * 25 + 2, 31); }},
      {"first_moment of '0.weight'", [](optim::Adam& adam) { flip_bit(adam.state_tensors()[0].second, 0, 12); }},
      {"second_moment of '", [](optim::Adam& adam) { flip_bit(adam.state_tensors()[1].second, 44'000, 5); }},
      {"average of '0.bias'", [](optim::Adam& adam) { flip_bit(adam.state_tensors()[2].second, 6 * 25 + 2, 0); }},
      {"counters of the training", [](optim::Adam& adam) { adam.state().set(step_slot::kStep, 4); }}};
  for (const Device device : testing::test_devices()) {
    for (const Row& row : rows) {
      CAPTURE(device.to_string(), row.found);
      const auto texts = compare(4, device, [&](int rank, optim::Adam& adam) {
        if (rank == 2) row.change(adam);
      });
      for (const std::string& text : texts) {
        CAPTURE(text);
        CHECK(text.starts_with(row.found));
        CHECK(text.ends_with(": rank 2 of 4 differs from the others"));
      }
    }
    for (const std::string& text : compare(3, device, [](int, optim::Adam&) {})) CHECK(text == "");
  }
}

TEST_CASE("ranks that are not like most are named; of two the second one") {
  const auto flip_on = [](const std::set<int>& ranks) {
    return [ranks](int rank, optim::Adam& adam) {
      if (ranks.count(rank) > 0) flip_bit(adam.parameters().data(), 0, 1);
    };
  };
  CHECK(compare(2, Device::cpu(), flip_on({0}))[1].ends_with(": rank 1 of 2 differs from rank 0"));
  CHECK(compare(3, Device::cpu(), flip_on({0}))[1].ends_with(": rank 0 of 3 differs from the others"));
  CHECK(compare(5, Device::cpu(), flip_on({1, 4}))[0].ends_with(": ranks 1, 4 of 5 differ from the others"));
}
