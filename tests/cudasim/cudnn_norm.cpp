// The simulated cuDNN's batch norm: training, inference, gradient, and the statistics that a convolution can leave.
// Source: Ioffe and Szegedy, Batch Normalization, 2015, algorithm 1 and the gradients of its section 3; the running
// variance is the unbiased one, as cuDNN's manual has it for cudnnBatchNormalizationForwardTraining().
#include <algorithm>
#include <cmath>

#include "tests/cudasim/cudnn_compute.h"

namespace cudasim {
namespace {

using Numbers = std::vector<double>;

Values channel_vector(const Operation& operation, cudnnBackendAttributeName_t role, const Numbers& numbers) {
  Values values(operation.find(role)->dims);
  values.data = numbers;
  return values;
}

// Rows of channels: batch norm does not care where in an image a pixel is.
struct Rows {
  std::size_t count = 0;
  std::size_t channels = 0;
};
Rows rows_of(const Values& x) {
  const auto channels = static_cast<std::size_t>(x.dims[1]);
  return {x.data.size() / channels, channels};
}

void compute_inference(const Operation& operation, TensorTable& tensors) {
  const Values& x = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC);
  const Numbers& mean = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC).data;
  const Numbers& inverse = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC).data;
  const Numbers& scale = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC).data;
  const Numbers& bias = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC).data;
  Values y(x.dims);
  const std::size_t channels = rows_of(x).channels;
  for (std::size_t i = 0; i < y.data.size(); ++i) {
    const std::size_t c = i % channels;
    y.data[i] = (x.data[i] - mean[c]) * inverse[c] * scale[c] + bias[c];
  }
  tensors.output(operation, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, std::move(y));
}

void update_running(const Operation& operation, TensorTable& tensors, const Numbers& mean, const Numbers& variance) {
  if (operation.find(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC) == nullptr) return;
  const double factor = tensors.scalar(operation, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC);
  const auto blend = [&](cudnnBackendAttributeName_t from, cudnnBackendAttributeName_t to, const Numbers& batch) {
    Values running = tensors.input(operation, from);
    for (std::size_t c = 0; c < batch.size(); ++c) {
      running.data[c] = (1 - factor) * running.data[c] + factor * batch[c];
    }
    tensors.output(operation, to, std::move(running));
  };
  blend(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
        mean);
  blend(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC,
        variance);
}

void compute_training(const Operation& operation, TensorTable& tensors) {
  const Values& x = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC);
  const Numbers& scale = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC).data;
  const Numbers& bias = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC).data;
  const double epsilon = tensors.scalar(operation, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC);
  const Rows rows = rows_of(x);
  const auto count = static_cast<double>(rows.count);
  Numbers mean(rows.channels), variance(rows.channels), inverse(rows.channels), unbiased(rows.channels);
  for (std::size_t i = 0; i < x.data.size(); ++i) mean[i % rows.channels] += x.data[i];
  for (double& value : mean) value /= count;
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const double deviation = x.data[i] - mean[i % rows.channels];
    variance[i % rows.channels] += deviation * deviation;
  }
  for (std::size_t c = 0; c < rows.channels; ++c) {
    unbiased[c] = variance[c] / std::max(count - 1, 1.0);
    variance[c] /= count;
    inverse[c] = 1 / std::sqrt(variance[c] + epsilon);
  }
  Values y(x.dims);
  for (std::size_t i = 0; i < y.data.size(); ++i) {
    const std::size_t c = i % rows.channels;
    y.data[i] = (x.data[i] - mean[c]) * inverse[c] * scale[c] + bias[c];
  }
  update_running(operation, tensors, mean, unbiased);
  tensors.output(operation, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, std::move(y));
  tensors.output(operation, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
                 channel_vector(operation, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean));
  tensors.output(operation, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
                 channel_vector(operation, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, inverse));
}

void compute_gradient(const Operation& operation, TensorTable& tensors) {
  const Values& x = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC);
  const Values& dy = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC);
  const Numbers& mean = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC).data;
  const Numbers& inverse = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC).data;
  const Numbers& scale = tensors.input(operation, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC).data;
  const Rows rows = rows_of(x);
  const auto count = static_cast<double>(rows.count);
  Numbers dscale(rows.channels), dbias(rows.channels);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const std::size_t c = i % rows.channels;
    dbias[c] += dy.data[i];
    dscale[c] += dy.data[i] * (x.data[i] - mean[c]) * inverse[c];
  }
  // dx = scale * inverse * (dy - mean(dy) - xhat * mean(dy * xhat))
  Values dx(x.dims);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const std::size_t c = i % rows.channels;
    const double normalised = (x.data[i] - mean[c]) * inverse[c];
    dx.data[i] = scale[c] * inverse[c] * (dy.data[i] - dbias[c] / count - normalised * dscale[c] / count);
  }
  tensors.output(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, std::move(dx));
  tensors.output(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
                 channel_vector(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, dscale));
  tensors.output(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC,
                 channel_vector(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, dbias));
}

void compute_sums(const Operation& operation, TensorTable& tensors) {
  const Values& x = tensors.input(operation, CUDNN_ATTR_OPERATION_GENSTATS_XDESC);
  const std::size_t channels = rows_of(x).channels;
  Numbers sum(channels), square_sum(channels);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    sum[i % channels] += x.data[i];
    square_sum[i % channels] += x.data[i] * x.data[i];
  }
  tensors.output(operation, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
                 channel_vector(operation, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum));
  tensors.output(operation, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC,
                 channel_vector(operation, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, square_sum));
}

// From sums to what a following scale and bias need.
void compute_finalization(const Operation& operation, TensorTable& tensors) {
  const Numbers& sum = tensors.input(operation, CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC).data;
  const Numbers& square_sum = tensors.input(operation, CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC).data;
  const Numbers& scale = tensors.input(operation, CUDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC).data;
  const Numbers& bias = tensors.input(operation, CUDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC).data;
  const double count = tensors.scalar(operation, CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC);
  const double epsilon = tensors.scalar(operation, CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC);
  Numbers mean(sum.size()), unbiased(sum.size()), inverse(sum.size()), eq_scale(sum.size()), eq_bias(sum.size());
  for (std::size_t c = 0; c < sum.size(); ++c) {
    mean[c] = sum[c] / count;
    const double variance = std::max(square_sum[c] / count - mean[c] * mean[c], 0.0);
    unbiased[c] = variance * count / std::max(count - 1, 1.0);
    inverse[c] = 1 / std::sqrt(variance + epsilon);
    eq_scale[c] = scale[c] * inverse[c];
    eq_bias[c] = bias[c] - mean[c] * eq_scale[c];
  }
  const auto put = [&](cudnnBackendAttributeName_t role, const Numbers& numbers) {
    if (operation.find(role) != nullptr) tensors.output(operation, role, channel_vector(operation, role, numbers));
  };
  const auto blend = [&](cudnnBackendAttributeName_t from, cudnnBackendAttributeName_t to, const Numbers& batch) {
    if (operation.find(from) == nullptr || operation.find(to) == nullptr) return;
    const double factor = tensors.scalar(operation, CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC);
    Numbers running = tensors.input(operation, from).data;
    for (std::size_t c = 0; c < batch.size(); ++c) running[c] = (1 - factor) * running[c] + factor * batch[c];
    put(to, running);
  };
  blend(CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC, mean);
  blend(CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC, unbiased);
  put(CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC, mean);
  put(CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC, inverse);
  put(CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC, eq_scale);
  put(CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC, eq_bias);
}

}  // namespace

void compute_norm(const Operation& operation, TensorTable& tensors) {
  if (operation.kind == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR) {
    compute_gradient(operation, tensors);
  } else if (operation.phase == CUDNN_NORM_FWD_INFERENCE) {
    compute_inference(operation, tensors);
  } else {
    compute_training(operation, tensors);
  }
}

void compute_statistics(const Operation& operation, TensorTable& tensors) {
  if (operation.kind == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR) {
    compute_sums(operation, tensors);
  } else {
    compute_finalization(operation, tensors);
  }
}

}  // namespace cudasim
