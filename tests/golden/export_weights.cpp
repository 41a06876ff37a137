// The program's half of torch_reads_weights.py: writes models with drawn weights and their logits for a batch from a
// formula; and for a file of weights from PyTorch the logits that Heddle computes with them.
// usage: export_weights FOLDER [NAME]      all models, or the one whose weights are in FOLDER/NAME-torch.safetensors
#include <cstdio>
#include <exception>
#include <string>

#include "engine/autograd/node.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/state_dict.h"
#include "models/model_list.h"

namespace {

using namespace heddle;

constexpr std::int64_t kBatch = 4;

Tensor make_images(const models::ModelOptions& options) {
  const Shape shape{kBatch, options.height, options.width, options.in_channels};
  std::vector<float> pixels(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * 37 % 251) / 256.f;
  return Tensor::from_values(pixels, shape);
}

void write_logits(const std::string& path, nn::Module& model, const Tensor& images) {
  model.train(false);
  const Tensor logits = model.forward(images).data();
  const auto dims = images.shape().dims();
  const std::vector<TensorToWrite> tensors{
      {"images", SafetensorsType::f32, {dims.begin(), dims.end()}, images.raw_data()},
      {"logits", SafetensorsType::f32, {kBatch, logits.dim(1)}, logits.raw_data()}};
  write_safetensors(path, tensors);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2 && argc != 3) return 2;
  const NoGradGuard guard;
  for (const models::ModelInfo& info : models::model_list()) {
    const models::ModelOptions options{.in_channels = info.in_channels == 0 ? 1 : info.in_channels};
    const auto model = info.make(options);
    const Tensor images = make_images(options);
    const std::string path = std::string(argv[1]) + "/" + info.name;
    if (argc == 2) {
      Philox random(11);
      model->reset_parameters(random);
      // In training mode: running statistics are no longer 0 and 1.
      model->forward(images);
      checkpoint::save_weights(path + ".safetensors", *model);
      write_logits(path + "-logits.safetensors", *model, images);
    } else if (std::string(info.name) == argv[2]) {
      checkpoint::load_weights(path + "-torch.safetensors", *model);
      write_logits(path + "-torch-logits.safetensors", *model, images);
    }
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "export_weights: %s\n", e.what());
  return 1;
}
