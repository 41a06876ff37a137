// Softmax and cross-entropy against the references, and cross-entropy at its edges, on every device.
#include <cmath>
#include <limits>

#include "engine/backend/backend.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;
using reference::Arrays;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Where and in what the numbers of one row are computed.
struct Place {
  Device device;
  DType dtype;
};
std::vector<Place> places() {
  std::vector<Place> all;
  for (const Device device : test_devices()) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      if (holds(device, dtype)) all.push_back({device, dtype});
    }
  }
  return all;
}

struct Result {
  double loss;
  Array gradient;
  std::vector<float> tail;
};
Result one_row(const std::vector<double>& logits, std::int64_t label, double smoothing, Place place) {
  const auto classes = static_cast<std::int64_t>(logits.size());
  CrossEntropyResult result{.row_loss = Tensor::empty({1}, place.dtype, place.device),
                            .dlogits = Tensor::empty({1, classes}, place.dtype, place.device),
                            .stats = Tensor::zeros({tail_slot::kCount}, DType::f32, place.device)};
  backend_for(place.device)
      .cross_entropy(tensor_of(Array({1, classes}, logits), place.dtype, place.device),
                     Tensor::full({1}, static_cast<double>(label), DType::i64, place.device), Tensor(),
                     {.label_smoothing = smoothing}, result);
  return {result.row_loss.item(), array_of(result.dlogits), result.stats.to_vector<float>()};
}

}  // namespace

TEST_CASE("softmax and log-softmax agree with the reference") {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 10}, Shape{7}, Shape{2, 3, 33}, Shape{0, 5}, Shape{4, 0},
                             Shape{600, 17}, Shape{2, 3000}}) {
    for (const bool log : {false, true}) {
      expect_parity_everywhere(
          {.name = join_text(log ? "log-" : "", "softmax ", shape),
           .inputs = {random_input(shape, -8, 8)},
           .outputs = {{shape}},
           .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).softmax_forward(in[0], log, out[0]); },
           .reference = [&](const Arrays& in) { return Arrays{reference::softmax_forward(in[0], log)}; },
           .dtypes = {DType::f32, DType::f64, DType::bf16}});
      const Array y = reference::softmax_forward(random_array(shape, -8, 8, 4), log);
      expect_parity_everywhere(
          {.name = join_text(log ? "log-" : "", "softmax backward ", shape),
           .inputs = {exact_input(y), random_input(shape)},
           .outputs = {{shape}},
           .call = [&](auto& in, auto& out,
                       WriteMode mode) { backend_of(out).softmax_backward(in[0], in[1], log, out[0], mode); },
           .reference = [&](const Arrays& in) { return Arrays{reference::softmax_backward(in[0], in[1], log)}; },
           .write_modes = true});
    }
  }
}

TEST_CASE("cross-entropy agrees with the reference") {
  for (const auto& [rows, classes] :
       {std::pair{1, 1}, {5, 10}, {0, 10}, {37, 3}, {256, 10}, {3, 1000}, {64, 17}, {700, 5}, {40, 50}}) {
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      for (const bool weighted : {false, true}) {
        for (const bool gradient : {false, true}) {
          // Without a gradient the sums are added and the losses of rows are wanted, with one it is the other way.
          const WriteMode stats_mode = gradient ? WriteMode::store : WriteMode::add;
          // Label 2 is ignored where it occurs.
          const CrossEntropyParams params{.label_smoothing = smoothing, .ignore_index = classes > 2 ? 2 : -100};
          const Shape shape{rows, classes};
          std::vector<ParityOutput> outputs = {
              {{gradient ? 1 : rows}}, {{tail_slot::kCount}, DType::f32, integer_array({tail_slot::kCount}, 0, 9)}};
          if (gradient) outputs.push_back({shape});
          expect_parity_everywhere(
              {.name = join_text("cross_entropy ", shape, " e ", smoothing, weighted ? " weighted" : ""),
               .inputs = {random_input(shape, -5, 5), integer_input({rows}, DType::i64, 0, classes - 1),
                          weighted ? random_input({classes}, 0.2, 2) : no_input()},
               .outputs = outputs,
               .call =
                   [&](auto& in, auto& out, WriteMode) {
                     CrossEntropyResult result{.stats = out[1], .stats_mode = stats_mode};
                     (gradient ? result.loss : result.row_loss) = out[0];
                     if (gradient) result.dlogits = out[2];
                     backend_of(out).cross_entropy(in[0], in[1], in[2], params, result);
                   },
               .reference =
                   [&](const Arrays& in) {
                     auto result = reference::cross_entropy(in[0], in[1], in[2], params);
                     for (std::int64_t i = 0; i < result.stats.numel(); ++i) {
                       if (stats_mode == WriteMode::add) result.stats[i] += in[3][i];
                     }
                     // The tail is f32 whatever the logits are.
                     for (double& v : result.stats.values) v = static_cast<double>(static_cast<float>(v));
                     if (!gradient) return Arrays{result.row_loss, result.stats};
                     Array loss({1});
                     for (const double row : result.row_loss.values) loss[0] += row;
                     Arrays all{loss, result.stats, result.dlogits};
                     return all;
                   }});
        }
      }
    }
  }
}

TEST_CASE("cross-entropy is right where logits are extreme") {
  for (const Place place : places()) {
    INFO(place.device << ", " << place.dtype);
    Result r = one_row({1000, -1000}, 0, 0, place);
    CHECK(r.loss == 0);
    CHECK(compare(r.gradient, Array({1, 2}, {0, 0}), 0) == "");
    r = one_row({1000, -1000}, 1, 0, place);
    CHECK(r.loss == 2000);
    CHECK(compare(r.gradient, Array({1, 2}, {1, -1}), 0) == "");
    CHECK(one_row({1000, -1000}, 1, 0.1, place).loss == Approx(1900).epsilon(1e-6));
    for (const double huge : {1e38, -1e38}) {
      CHECK(one_row(std::vector<double>(10, huge), 3, 0, place).loss == Approx(2.3025851).epsilon(1e-6));
    }
    CHECK(one_row({2, 0, 0}, 0, 0, place).loss == Approx(0.2395448).epsilon(1e-6));
    r = one_row({2, 0, 0}, 0, 0.1, place);
    CHECK(r.loss == Approx(0.3728781).epsilon(1e-6));
    CHECK(compare(r.gradient, Array({1, 3}, {-0.1463473, 0.0731736, 0.0731736}), 1e-6) == "");
    r = one_row({-kInf, 0}, 1, 0, place);
    CHECK(r.loss == 0);
    CHECK(compare(r.gradient, Array({1, 2}, {0, 0}), 0) == "");
    CHECK(r.tail[tail_slot::kNonFinite] == 0);
    r = one_row({-kInf, 0}, 0, 0, place);
    CHECK(r.loss == kInf);
    CHECK(compare(r.gradient, Array({1, 2}, {-1, 1}), 0) == "");
    CHECK(r.tail[tail_slot::kNonFinite] > 0);
    for (std::size_t at = 0; at < 3; ++at) {
      std::vector<double> logits = {1, 2, 3};
      logits[at] = kNan;
      for (const double smoothing : {0.0, 0.1}) {
        r = one_row(logits, 1, smoothing, place);
        CHECK(std::isnan(r.loss));
        CHECK(r.tail[tail_slot::kNonFinite] > 0);
      }
    }
  }
}

TEST_CASE("rows of the cross-entropy gradient sum to zero and ties count for the first class") {
  for (const Device device : test_devices()) {
    CrossEntropyResult result{.dlogits = Tensor::empty({50, 10}, DType::f32, device)};
    Backend& backend = backend_for(device);
    backend.cross_entropy(tensor_of(random_array({50, 10}, -4, 4), DType::f32, device),
                          tensor_of(integer_array({50}, 0, 9), DType::i64, device), Tensor(), {}, result);
    Tensor sums = Tensor::empty({50}, DType::f32, device);
    backend.reduce(ReduceKind::sum, result.dlogits, 2, sums, WriteMode::store);
    CHECK(compare(array_of(sums), Array({50}), 1e-6) == "");
  }
  for (const Place place : places()) {
    CHECK(one_row({3, 3, 1}, 0, 0, place).tail[tail_slot::kCorrect] == 1);
    CHECK(one_row({3, 3, 1}, 1, 0, place).tail[tail_slot::kCorrect] == 0);
    // Enough classes that a GPU shares a row among threads.
    std::vector<double> many(100, 1.0);
    many[40] = many[77] = 3;
    CHECK(one_row(many, 40, 0, place).tail[tail_slot::kCorrect] == 1);
    CHECK(one_row(many, 77, 0, place).tail[tail_slot::kCorrect] == 0);
  }
}

TEST_CASE("cross-entropy names what it does not offer") {
  for (const Device device : test_devices()) {
    if (device.is_cpu()) continue;  // it widens bf16
    const Tensor logits = Tensor::zeros({2, 3}, DType::bf16, device), labels = Tensor::zeros({2}, DType::i64, device);
    CrossEntropyResult result{.row_loss = Tensor::zeros({2}, DType::f32, device)};
    CHECK_THROWS_WITH(backend_for(device).cross_entropy(logits, labels, Tensor(), {}, result),
                      Catch::Contains("cross_entropy") && Catch::Contains("bf16"));
  }
}
