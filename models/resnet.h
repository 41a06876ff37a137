// ResNet-18 in three forms. model_list.cpp includes it, and tests that need a narrow one.
#pragma once

#include <cstdint>
#include <memory>

#include "models/model_list.h"

namespace heddle::models {

struct ResNetOptions {
  bool small_stem = false;          // convolution 3x3, and no pooling, instead of 7x7 with stride 2 and MaxPool 3
  std::int64_t base_channels = 64;  // of the first stage; each further one has twice as many
  bool conv_bias = true;            // of all convolutions
  bool norm_shortcut = false;       // a batch norm behind the convolutions on shortcuts
};

// Stem (conv1, bn1, ReLU, pooling), four stages layer1 to layer4 of two residual blocks each, the first of stages 2 to
// 4 with stride 2, the mean over the map, and a linear layer fc: torchvision's names. The images may have any size from
// the stem's window on. Throws: InvalidArgument if they are smaller.
std::shared_ptr<nn::Module> make_resnet(const ModelOptions& options, const ResNetOptions& resnet);

// 11,178,378 parameters in 76 tensors for one channel and ten classes. Source: Zhang et al., "Dive into deep learning",
// the chapter on residual networks, with a 1x1 convolution on the shortcut wherever the shape changes.
std::shared_ptr<nn::Module> make_resnet18(const ModelOptions& options);

// The same with the small stem, which keeps small images large: 11,175,818 parameters.
std::shared_ptr<nn::Module> make_resnet18_cifar(const ModelOptions& options);

// torchvision's: no bias under a batch norm, a batch norm on the shortcuts; takes its state dict. The images must have
// three channels. 11,689,512 parameters for 1000 classes.
// Source: https://pytorch.org/vision/stable/models/generated/torchvision.models.resnet18.html
std::shared_ptr<nn::Module> make_resnet18_tv(const ModelOptions& options);

}  // namespace heddle::models
