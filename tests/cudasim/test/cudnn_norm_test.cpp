// The simulated cuDNN's batch norm, pooling, pointwise operations and reductions against loops.
#include <cmath>

#include "tests/cudasim/test/cudnn_test_support.h"

namespace {

using namespace cudnn_test;
using cudasim::ElementType;
using Numbers = std::vector<double>;

constexpr std::int64_t kChannels = 8;
const Dims kImage{2, kChannels, 3, 2};
const Dims kVector{1, kChannels, 1, 1};
const Dims kOne{1, 1, 1, 1};
constexpr std::size_t kRows = 12;

// Tensors of a batch norm by their ids.
enum Id : std::int64_t {
  x_id = 1,
  y_id,
  scale_id,
  bias_id,
  mean_id,
  inverse_id,
  running_mean_in,
  running_var_in,
  running_mean_out,
  running_var_out,
  epsilon_id,
  factor_id,
  addend_id,
  mask_id,
  zero_id,
  dy_id,
  dx_id,
  dscale_id,
  dbias_id,
  dz_id
};

Descriptor norm_forward(const TensorSpec& x, const TensorSpec& y) {
  return Descriptor(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, tensor(x))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, tensor(y))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, tensor({scale_id, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, tensor({bias_id, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, tensor({mean_id, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, tensor({inverse_id, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, tensor({running_mean_in, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, tensor({running_var_in, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, tensor({running_mean_out, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, tensor({running_var_out, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, tensor({.id = epsilon_id, .dims = kOne, .by_value = true}))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, tensor({.id = factor_id, .dims = kOne, .by_value = true}))
      .finalize();
}

Descriptor norm_backward(const TensorSpec& dy) {
  return Descriptor(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, tensor({x_id, kImage}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, tensor(dy))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, tensor({dx_id, kImage}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, tensor({mean_id, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, tensor({inverse_id, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, tensor({scale_id, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, tensor({dscale_id, kVector}))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, tensor({dbias_id, kVector}))
      .finalize();
}

struct Statistics {
  Numbers mean = Numbers(kChannels), variance = Numbers(kChannels), inverse = Numbers(kChannels);
};
Statistics statistics_of(const Numbers& x, double epsilon) {
  Statistics s;
  for (std::size_t c = 0; c < kChannels; ++c) {
    for (std::size_t r = 0; r < kRows; ++r) s.mean[c] += x[r * kChannels + c] / kRows;
    for (std::size_t r = 0; r < kRows; ++r) s.variance[c] += std::pow(x[r * kChannels + c] - s.mean[c], 2) / kRows;
    s.inverse[c] = 1 / std::sqrt(s.variance[c] + epsilon);
  }
  return s;
}

constexpr std::int64_t kNumel = kRows * kChannels;

}  // namespace

TEST_CASE("cuDNN: batch norm, addition, ReLU and its mask in one call; running statistics in place") {
  const Cudnn cudnn;
  const auto x = varied(kNumel, 1), addend = varied(kNumel, 2), scale = varied(kChannels, 3);
  const auto bias = varied(kChannels, 4), running_mean = varied(kChannels, 5), running_var = varied(kChannels, 6);
  const NumberArray device_x(x), device_addend(addend), device_scale(scale), device_bias(bias), y(kNumel);
  const NumberArray mean(kChannels), inverse(kChannels), device_mean(running_mean), device_var(running_var);
  const NumberArray mask(kNumel, ElementType::boolean);
  float epsilon = 1e-3f, factor = 0.25f, zero = 0;
  const TensorSpec normalised{100, kImage, CUDNN_DATA_FLOAT, true}, sum{101, kImage, CUDNN_DATA_FLOAT, true};
  const TensorSpec result{y_id, kImage};
  cudnn.run(operations(norm_forward({x_id, kImage}, normalised),
                       pointwise(CUDNN_POINTWISE_ADD, normalised, {addend_id, kImage}, sum),
                       pointwise(CUDNN_POINTWISE_RELU_FWD, sum, {}, result),
                       pointwise(CUDNN_POINTWISE_CMP_GT, result, {.id = zero_id, .dims = kOne, .by_value = true},
                                 {mask_id, kImage, CUDNN_DATA_BOOLEAN})),
            {{x_id, device_x.data()},
             {y_id, y.data()},
             {scale_id, device_scale.data()},
             {bias_id, device_bias.data()},
             {mean_id, mean.data()},
             {inverse_id, inverse.data()},
             {running_mean_in, device_mean.data()},
             {running_var_in, device_var.data()},
             {running_mean_out, device_mean.data()},
             {running_var_out, device_var.data()},
             {epsilon_id, &epsilon},
             {factor_id, &factor},
             {zero_id, &zero},
             {addend_id, device_addend.data()},
             {mask_id, mask.data()}});
  const Statistics s = statistics_of(x, epsilon);
  Numbers expected(x.size()), bits(x.size()), new_mean(kChannels), new_var(kChannels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % kChannels;
    const double value = (x[i] - s.mean[c]) * s.inverse[c] * scale[c] + bias[c] + addend[i];
    expected[i] = value > 0 ? value : 0;
    bits[i] = value > 0;
  }
  for (std::size_t c = 0; c < kChannels; ++c) {
    new_mean[c] = 0.75 * running_mean[c] + 0.25 * s.mean[c];
    new_var[c] = 0.75 * running_var[c] + 0.25 * s.variance[c] * kRows / (kRows - 1);
  }
  CHECK(largest_error(y.download(), expected) < 1e-6);
  CHECK(mask.download() == bits);
  CHECK(largest_error(mean.download(), s.mean) < 1e-6);
  CHECK(largest_error(inverse.download(), s.inverse) < 1e-6);
  CHECK(largest_error(device_mean.download(), new_mean) < 1e-6);
  CHECK(largest_error(device_var.download(), new_var) < 1e-6);
}

TEST_CASE("cuDNN: the gradient of batch norm, of a masked gradient that is kept or not") {
  const bool masked = GENERATE(false, true), kept = GENERATE(false, true);
  const Cudnn cudnn;
  const auto x = varied(kNumel, 1), dy = varied(kNumel, 2), scale = varied(kChannels, 3);
  Numbers bits(x.size());
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = !masked || i % 3 != 0;
  const Statistics s = statistics_of(x, 1e-3);
  const NumberArray device_x(x), device_dy(dy), device_scale(scale), mean(s.mean), inverse(s.inverse);
  const NumberArray mask(bits, ElementType::boolean), dz(Numbers(x.size(), 5.0)), dx(kNumel), dscale(kChannels);
  const NumberArray dbias(kChannels);
  const TensorSpec masked_dy{dz_id, kImage, CUDNN_DATA_FLOAT, !kept};
  auto list = masked ? operations(pointwise(CUDNN_POINTWISE_MUL, {dy_id, kImage}, {mask_id, kImage, CUDNN_DATA_BOOLEAN},
                                            masked_dy),
                                  norm_backward(masked_dy))
                     : operations(norm_backward({dy_id, kImage}));
  cudnn.run(list, {{x_id, device_x.data()},
                   {dy_id, device_dy.data()},
                   {dx_id, dx.data()},
                   {scale_id, device_scale.data()},
                   {mean_id, mean.data()},
                   {inverse_id, inverse.data()},
                   {dscale_id, dscale.data()},
                   {dbias_id, dbias.data()},
                   {mask_id, mask.data()},
                   {dz_id, dz.data()}});
  Numbers expected_dz(x.size()), expected_dx(x.size()), expected_dscale(kChannels), expected_dbias(kChannels);
  const auto normalised = [&](std::size_t i) { return (x[i] - s.mean[i % kChannels]) * s.inverse[i % kChannels]; };
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected_dz[i] = dy[i] * bits[i];
    expected_dbias[i % kChannels] += expected_dz[i];
    expected_dscale[i % kChannels] += expected_dz[i] * normalised(i);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % kChannels;
    expected_dx[i] =
        scale[c] * s.inverse[c] * (expected_dz[i] - (expected_dbias[c] + normalised(i) * expected_dscale[c]) / kRows);
  }
  CHECK(largest_error(dx.download(), expected_dx) < 1e-5);
  CHECK(largest_error(dscale.download(), expected_dscale) < 1e-5);
  CHECK(largest_error(dbias.download(), expected_dbias) < 1e-5);
  CHECK(dz.download() == (masked && kept ? expected_dz : Numbers(x.size(), 5.0)));
}

namespace {

struct PoolingSpec {
  cudnnResampleMode_t mode = CUDNN_RESAMPLE_MAXPOOL;
  std::int64_t window = 2, stride = 2, padding = 0;
};
Descriptor resample(const PoolingSpec& spec) {
  Descriptor descriptor(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
  const auto set_pair = [&](cudnnBackendAttributeName_t name, std::int64_t value) {
    const cudnnFraction_t pair[2] = {{value, 1}, {value, 1}};
    REQUIRE(descriptor.try_set(name, CUDNN_TYPE_FRACTION, 2, pair) == CUDNN_STATUS_SUCCESS);
  };
  set_pair(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, spec.window);
  set_pair(CUDNN_ATTR_RESAMPLE_STRIDES, spec.stride);
  set_pair(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, spec.padding);
  set_pair(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, spec.padding);
  return std::move(descriptor)
      .set(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, spec.mode)
      .set(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2})
      .set(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, CUDNN_NEG_INF_PAD)
      .finalize();
}

}  // namespace

TEST_CASE("cuDNN: pooling with its index, and the gradient") {
  const Dims x_dims{2, 3, 5, 5};
  const PoolingSpec spec = GENERATE(values<PoolingSpec>({{CUDNN_RESAMPLE_MAXPOOL, 2, 2, 0},
                                                         {CUDNN_RESAMPLE_MAXPOOL, 3, 2, 1},
                                                         {CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING, 3, 2, 1},
                                                         {CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, 3, 2, 1}}));
  const bool maximum = spec.mode == CUDNN_RESAMPLE_MAXPOOL;
  const std::int64_t out = (5 + 2 * spec.padding - spec.window) / spec.stride + 1;
  const Dims y_dims{2, 3, out, out};
  const Cudnn cudnn;
  const auto x = varied(150, 1), dy = varied(6 * out * out, 2);
  const NumberArray device_x(x), device_dy(dy), y(6 * out * out), index(6 * out * out, ElementType::int8), dx(150);

  Descriptor forward = Descriptor(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR)
                           .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, resample(spec))
                           .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, tensor({1, x_dims}))
                           .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, tensor({2, y_dims}));
  Descriptor backward = Descriptor(CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR)
                            .set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, resample(spec))
                            .set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, tensor({4, x_dims}))
                            .set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, tensor({3, y_dims}));
  if (maximum) {
    const TensorSpec index_spec{5, y_dims, CUDNN_DATA_INT8};
    std::move(forward).set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, tensor(index_spec));
    std::move(backward).set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, tensor(index_spec));
  }
  REQUIRE(forward.try_finalize() == CUDNN_STATUS_SUCCESS);
  REQUIRE(backward.try_finalize() == CUDNN_STATUS_SUCCESS);
  cudnn.run(operations(std::move(forward)), {{1, device_x.data()}, {2, y.data()}, {5, index.data()}});
  cudnn.run(operations(std::move(backward)), {{3, device_dy.data()}, {4, dx.data()}, {5, index.data()}});

  Numbers expected_y, expected_dx(150);
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t oy = 0; oy < out; ++oy)
      for (std::int64_t ox = 0; ox < out; ++ox)
        for (std::int64_t c = 0; c < 3; ++c) {
          std::vector<std::size_t> places;
          for (std::int64_t ky = 0; ky < spec.window; ++ky)
            for (std::int64_t kx = 0; kx < spec.window; ++kx) {
              const std::int64_t iy = oy * spec.stride - spec.padding + ky, ix = ox * spec.stride - spec.padding + kx;
              if (iy < 0 || iy >= 5 || ix < 0 || ix >= 5) continue;
              places.push_back(static_cast<std::size_t>(((n * 5 + iy) * 5 + ix) * 3 + c));
            }
          const double gradient = dy[expected_y.size()];
          if (maximum) {
            std::size_t best = places[0];
            for (const std::size_t place : places) best = x[place] > x[best] ? place : best;
            expected_y.push_back(x[best]);
            expected_dx[best] += gradient;
          } else {
            const bool counts_padding = spec.mode == CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING;
            const double count = static_cast<double>(counts_padding ? spec.window * spec.window
                                                                    : static_cast<std::int64_t>(places.size()));
            double sum = 0;
            for (const std::size_t place : places) sum += x[place];
            for (const std::size_t place : places) expected_dx[place] += gradient / count;
            expected_y.push_back(sum / count);
          }
        }
  CHECK(largest_error(y.download(), expected_y) < 1e-6);
  CHECK(largest_error(dx.download(), expected_dx) < 1e-6);
}

TEST_CASE("cuDNN: pointwise operations repeat what has one element in a dimension") {
  const Cudnn cudnn;
  const auto x = varied(kNumel, 1), row = varied(kChannels, 2);
  const NumberArray device_x(x), device_row(row), y(kNumel), dx(kNumel);
  cudnn.run(operations(pointwise(CUDNN_POINTWISE_SUB, {1, kImage}, {2, kVector}, {3, kImage})),
            {{1, device_x.data()}, {2, device_row.data()}, {3, y.data()}});
  Numbers expected = x;
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] -= row[i % kChannels];
  CHECK(largest_error(y.download(), expected) < 1e-6);
  cudnn.run(operations(pointwise(CUDNN_POINTWISE_RELU_BWD, {1, kImage}, {2, kImage}, {3, kImage})),
            {{1, device_x.data()}, {2, y.data()}, {3, dx.data()}});
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = x[i] > 0 ? expected[i] : 0;
  CHECK(largest_error(dx.download(), expected) < 1e-6);
}

TEST_CASE("cuDNN: sums of channels, and statistics finished from sums") {
  const Cudnn cudnn;
  const auto x = varied(kNumel, 1);
  const NumberArray device_x(x), sum(kChannels), square_sum(kChannels), reduced(kChannels);
  const Descriptor function =
      Descriptor(CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
          .set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, CUDNN_REDUCE_TENSOR_AVG)
          .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
          .finalize();
  cudnn.run(operations(Descriptor(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
                           .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, function)
                           .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensor({1, kImage}))
                           .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor({2, kVector}))
                           .finalize()),
            {{1, device_x.data()}, {2, reduced.data()}});
  const Statistics s = statistics_of(x, 0);
  CHECK(largest_error(reduced.download(), s.mean) < 1e-6);
  cudnn.run(operations(Descriptor(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
                           .set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
                           .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
                           .set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, tensor({1, kImage}))
                           .set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, tensor({2, kVector}))
                           .set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, tensor({3, kVector}))
                           .finalize()),
            {{1, device_x.data()}, {2, sum.data()}, {3, square_sum.data()}});
  const auto sums = sum.download(), square_sums = square_sum.download();
  for (std::size_t c = 0; c < kChannels; ++c) {
    CHECK(sums[c] == Approx(s.mean[c] * kRows).margin(1e-5));
    CHECK(square_sums[c] == Approx((s.variance[c] + s.mean[c] * s.mean[c]) * kRows).margin(1e-5));
  }
}
