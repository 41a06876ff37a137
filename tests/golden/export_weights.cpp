// Writes both LeNets with drawn weights, and their logits for a batch from a formula, for torch_reads_weights.py.
// usage: export_weights FOLDER
#include <cstdio>
#include <exception>
#include <string>

#include "engine/autograd/node.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/state_dict.h"
#include "models/model_list.h"

int main(int argc, char** argv) try {
  using namespace heddle;
  if (argc != 2) return 2;
  constexpr std::int64_t kBatch = 4;
  std::vector<float> pixels(kBatch * 784);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * 37 % 251) / 256.f;
  const Tensor images = Tensor::from_values(pixels, {kBatch, 28, 28, 1});
  const NoGradGuard guard;
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    const auto model = models::make_model(name, {});
    Philox random(11);
    model->reset_parameters(random);
    const std::string path = std::string(argv[1]) + "/" + name;
    checkpoint::save_weights(path + ".safetensors", *model);
    const Tensor logits = model->forward(images).data();
    const std::vector<TensorToWrite> tensors{
        {"images", SafetensorsType::f32, {kBatch, 28, 28, 1}, images.raw_data()},
        {"logits", SafetensorsType::f32, {kBatch, logits.dim(1)}, logits.raw_data()}};
    write_safetensors(path + "-logits.safetensors", tensors);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "export_weights: %s\n", e.what());
  return 1;
}
