// Softmax and losses, random numbers, the update at the end of a step, and the batch at its head.
#include <memory>

#include "reference/reference.h"
#include "tools/bench/op_row.h"

namespace heddle::tools::bench {
namespace {

using Tensors = std::vector<Tensor>;

constexpr RandomStream kStream{.seed = 7, .offset = 0};

void require_all(const char* op, const Sizes& s, std::initializer_list<const char*> names) {
  for (const char* name : names) require_sizes(s[name] > 0, op, s, "n and other counts must be above 0");
}

Input whole_numbers(const Shape& shape, DType dtype, std::int64_t low, std::int64_t high) {
  return {.shape = shape, .dtype = dtype, .low = static_cast<double>(low), .high = static_cast<double>(high)};
}

// ---- softmax, cross-entropy
// ------------------------------------------------------------------------------------------

Case softmax_forward(const Sizes& s, DType dtype) {
  require_all("softmax_forward", s, {"n", "classes"});
  const bool log = s["log"] != 0;
  const Shape shape{s["n"], s["classes"]};
  return {.inputs = {{shape, dtype, -2, 2}},
          .outputs = {{shape, dtype}},
          .call = [=](Backend& b, const Tensors& in, Tensors& out) { b.softmax_forward(in[0], log, out[0]); },
          .reference = [=](const Arrays& in) -> Arrays { return {reference::softmax_forward(in[0], log)}; },
          .terms = static_cast<double>(s["classes"])};
}

Case softmax_backward(const Sizes& s, DType dtype) {
  require_all("softmax_backward", s, {"n", "classes"});
  const bool log = s["log"] != 0;
  const Shape shape{s["n"], s["classes"]};
  const auto classes = static_cast<double>(s["classes"]);
  // Logarithms, or probabilities of about the right size.
  const double low = log ? -4 : 0, high = log ? -1 : 2 / classes;
  return {.inputs = {{shape, dtype, low, high, 0}, {shape, dtype, -1, 1, 0}},
          .outputs = {{shape, dtype, 0}},
          .call = [=](Backend& b, const Tensors& in,
                      Tensors& out) { b.softmax_backward(in[0], in[1], log, out[0], WriteMode::store); },
          .reference = [=](const Arrays& in) -> Arrays { return {reference::softmax_backward(in[0], in[1], log)}; },
          .work = static_cast<double>(s["n"]) * classes* classes,
          .terms = classes};
}

// What a training step asks for: the loss, the gradient and the counts.
Case cross_entropy(const Sizes& s, DType dtype) {
  require_all("cross_entropy", s, {"n", "classes"});
  const Shape shape{s["n"], s["classes"]};
  return {.inputs = {{shape, dtype, -2, 2}, whole_numbers({s["n"]}, DType::i64, 0, s["classes"] - 1)},
          .outputs = {{.shape = {1}}, {.shape = shape, .dtype = dtype}, {.shape = {tail_slot::kCount}}},
          .call =
              [](Backend& b, const Tensors& in, Tensors& out) {
                CrossEntropyResult result{
                    .loss = out[0], .dlogits = out[1], .stats = out[2], .stats_mode = WriteMode::store};
                b.cross_entropy(in[0], in[1], Tensor(), {}, result);
              },
          .reference = [](const Arrays& in) -> Arrays {
            reference::CrossEntropy result = reference::cross_entropy(in[0], in[1], Array(), {});
            return {Array({1}, result.stats[tail_slot::kLossSum]), std::move(result.dlogits), std::move(result.stats)};
          },
          .terms = static_cast<double>(s["n"])};
}

// ---- random numbers
// --------------------------------------------------------------------------------------------------

Case dropout(const Sizes& s, DType dtype) {
  require_all("dropout", s, {"n"});
  return {.inputs = {{{s["n"]}, dtype}},
          .outputs = {{{s["n"]}, dtype}},
          .call = [](Backend& b, const Tensors& in,
                     Tensors& out) { b.dropout(in[0], 0.5, kStream, out[0], WriteMode::store); },
          .reference = [](const Arrays& in) -> Arrays { return {reference::dropout(in[0], 0.5, kStream)}; }};
}

Case random_uniform(const Sizes& s, DType dtype) {
  require_all("random_uniform", s, {"n"});
  const Shape shape{s["n"]};
  return {.inputs = {},
          .outputs = {{shape, dtype}},
          .call = [](Backend& b, const Tensors&, Tensors& out) { b.random_uniform(-1, 1, kStream, out[0]); },
          .reference = [=](const Arrays&) -> Arrays { return {reference::random_uniform(-1, 1, kStream, shape)}; }};
}

Case random_normal(const Sizes& s, DType dtype) {
  require_all("random_normal", s, {"n"});
  const Shape shape{s["n"]};
  return {.inputs = {},
          .outputs = {{shape, dtype}},
          .call = [](Backend& b, const Tensors&, Tensors& out) { b.random_normal(0, 1, kStream, out[0]); },
          .reference = [=](const Arrays&) -> Arrays { return {reference::random_normal(0, 1, kStream, shape)}; }};
}

// ---- update: always f32, as the weights that are updated are
// ---------------------------------------------------------

// So small a learning rate that thousands of updates change nothing that matters.
constexpr double kLearningRate = 1e-6, kWeightSum = 256;
constexpr std::int64_t kStepsDone = 9;

// The state of a training, made when the device is known. The calls leave its counters as they are, so that every call
// computes the same.
class Training {
 public:
  StepState& on(Device device) {
    if (state_ == nullptr) {
      state_ = std::make_unique<StepState>(device);
      state_->set_learning_rates({&kLearningRate, 1});
      state_->set(step_slot::kStep, kStepsDone);
    }
    return *state_;
  }

 private:
  std::unique_ptr<StepState> state_;
};
constexpr UpdateParams kUpdate{.divide_by_weight_sum = true, .finish = false};

Input tail() {
  Array values({tail_slot::kCount});
  values[tail_slot::kWeightSum] = kWeightSum;
  return {.shape = values.shape, .values = values};
}

void require_flat(const char* op, const Sizes& s) {
  require_sizes(s["n"] > 0 && s["n"] % 4 == 0, op, s, "n must be a multiple of 4");
}

Output updated(std::int64_t n, double low = -1, double high = 1) {
  return {.shape = {n}, .updated = true, .low = low, .high = high};
}

Case prepare_update(const Sizes& s, DType) {
  require_flat("prepare_update", s);
  constexpr double kMaxNorm = 1;
  const auto training = std::make_shared<Training>();
  return {.inputs = {{.shape = {s["n"]}}, tail()},
          .outputs = {{.shape = {step_scalar::kCount}, .updated = true}},
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                b.prepare_update(in[0], in[1], kMaxNorm, kUpdate, training->on(b.device()), out[0]);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            const Array prepared = reference::prepare_update(in[0], in[1], kMaxNorm, true);
            Array scalars = in[2];  // one of them has no meaning and stays
            for (const std::int64_t i : {step_scalar::kGradientScale, step_scalar::kGradientNorm, step_scalar::kSkip}) {
              scalars[i] = prepared[i];
            }
            return {scalars};
          },
          .terms = static_cast<double>(s["n"])};
}

Case sgd_update(const Sizes& s, DType) {
  require_flat("sgd_update", s);
  const bool momentum = s["momentum"] != 0;
  require_sizes(momentum || s["nesterov"] == 0, "sgd_update", s, "nesterov needs momentum");
  const SgdRange range{
      .begin = 0,
      .numel = s["n"],
      .params = {.momentum = momentum ? 0.9 : 0.0, .weight_decay = 5e-4, .nesterov = s["nesterov"] != 0}};
  const auto training = std::make_shared<Training>();
  std::vector<Output> outputs = {updated(s["n"])};
  if (momentum) outputs.push_back(updated(s["n"]));
  return {.inputs = {{.shape = {s["n"]}}, tail()},
          .outputs = outputs,
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                UpdateTensors tensors{.weights = out[0], .gradients = in[0], .tail = in[1]};
                if (momentum) tensors.first_state = out[1];
                b.sgd_update(tensors, {&range, 1}, kUpdate, training->on(b.device()));
              },
          .reference = [=](const Arrays& in) -> Arrays {
            reference::SgdState state =
                reference::sgd_update(in[2], in[0], momentum ? in[3] : Array(), range,
                                      {.learning_rate = kLearningRate, .gradient_scale = 1 / kWeightSum});
            Arrays result{std::move(state.w)};
            if (momentum) result.push_back(std::move(state.velocity));
            return result;
          }};
}

Case adam_update(const Sizes& s, DType) {
  require_flat("adam_update", s);
  const AdamRange range{
      .begin = 0, .numel = s["n"], .params = {.weight_decay = 1e-2, .decoupled = s["decoupled"] != 0}};
  const auto training = std::make_shared<Training>();
  return {
      .inputs = {{.shape = {s["n"]}}, tail()},
      .outputs = {updated(s["n"]), updated(s["n"]), updated(s["n"], 0.1, 1)},
      .call =
          [=](Backend& b, const Tensors& in, Tensors& out) {
            UpdateTensors tensors{
                .weights = out[0], .gradients = in[0], .tail = in[1], .first_state = out[1], .second_state = out[2]};
            b.adam_update(tensors, {&range, 1}, kUpdate, training->on(b.device()));
          },
      .reference = [=](const Arrays& in) -> Arrays {
        reference::AdamState state = reference::adam_update(in[2], in[0], in[3], in[4], range,
                                                            {.learning_rate = kLearningRate,
                                                             .gradient_scale = 1 / kWeightSum,
                                                             .step = static_cast<double>(kStepsDone + 1)});
        return {std::move(state.w), std::move(state.first_moment), std::move(state.second_moment)};
      }};
}

// ---- batch
// -----------------------------------------------------------------------------------------------------------

Case gather_images(const Sizes& s, DType dtype) {
  require_all("gather_images", s, {"images", "n", "h", "w", "c"});
  require_sizes(s["n"] <= s["images"] && s["c"] <= GatherImagesParams::kMaxChannels, "gather_images", s,
                "n must be at most images, c at most 4");
  GatherImagesParams params;
  params.random_flip = s["flip"] != 0;
  params.random_crop = s["crop"];
  params.seed = 5;
  const std::int64_t images = s["images"], n = s["n"];
  const Shape batch{n, s["h"], s["w"], s["c"]};
  const double image_values = static_cast<double>(s["h"] * s["w"] * s["c"]);
  // Calls since the cursor was last at the beginning, or more.
  const auto calls = std::make_shared<std::int64_t>(0);
  return {.inputs = {whole_numbers({images, s["h"], s["w"], s["c"]}, DType::u8, 0, 255),
                     whole_numbers({images}, DType::u8, 0, 9), whole_numbers({images}, DType::i32, 0, images - 1)},
          .outputs = {{batch, dtype},
                      {{n}, DType::i64},
                      {.shape = {cursor_slot::kCount}, .dtype = DType::i64, .updated = true, .low = 0, .high = 0}},
          .call =
              [=](Backend& b, const Tensors& in, Tensors& out) {
                // The cursor moves on with each call and must not leave the images.
                if ((*calls + 1) * n > images) {
                  b.fill(out[2], 0);
                  *calls = 0;
                }
                ++*calls;
                b.gather_images(in[0], in[1], in[2], out[2], params, out[0], out[1]);
              },
          .reference = [=](const Arrays& in) -> Arrays {
            reference::Batch result = reference::gather_images(in[0], in[1], in[2], in[3], n, params);
            Array cursor = in[3];
            cursor[cursor_slot::kPosition] += static_cast<double>(n);
            return {std::move(result.images), std::move(result.labels), std::move(cursor)};
          },
          // A byte of each pixel of the batch read and a float written; a label read as a byte and written as i64; the
          // image's number.
          .nbytes = static_cast<double>(n) * (image_values * (1 + static_cast<double>(size_of(dtype))) + 1 + 8 + 4)};
}

}  // namespace

void add_training_rows(std::vector<OpRow>& rows) {
  const Sizes classes{{"n", 4096}, {"classes", 1000}, {"log", 0}};
  const Sizes numel{{"n", 4194304}};
  rows.push_back({"softmax_forward", "over the last dimension; log: its logarithm", classes, softmax_forward});
  rows.push_back({"softmax_backward", "its gradient", classes, softmax_backward});
  rows.push_back({"cross_entropy",
                  "loss of each row, gradient, and counts, in one pass",
                  {{"n", 256}, {"classes", 10}},
                  cross_entropy});
  rows.push_back({"dropout", "zeroes half of the elements", numel, dropout});
  rows.push_back({"random_uniform", "uniform numbers", numel, random_uniform});
  rows.push_back({"random_normal", "normal numbers", numel, random_normal});
  rows.push_back({"prepare_update",
                  "norm and clipping factor of the gradient, before the update",
                  {{"n", 4194304}},
                  prepare_update});
  rows.push_back(
      {"sgd_update", "SGD on a flat buffer", {{"n", 4194304}, {"momentum", 1}, {"nesterov", 0}}, sgd_update});
  rows.push_back(
      {"adam_update", "Adam on a flat buffer; decoupled: AdamW", {{"n", 4194304}, {"decoupled", 0}}, adam_update});
  rows.push_back({"gather_images",
                  "from resident bytes to a normalised batch, with flip and shift if asked",
                  {{"images", 10000}, {"n", 256}, {"h", 28}, {"w", 28}, {"c", 1}, {"flip", 0}, {"crop", 0}},
                  gather_images});
}

}  // namespace heddle::tools::bench
