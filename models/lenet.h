// The two LeNets. Only model_list.cpp includes it.
#pragma once

#include <memory>

#include "models/model_list.h"

namespace heddle::models {

// Conv 6 k5, ReLU, MaxPool 2, Conv 16 k5, ReLU, MaxPool 2, Flatten, Linear 120-84-classes with ReLU between.
// 44,426 parameters for (28,28,1) and 10 classes. Source: LeCun et al., "Gradient-based learning applied to document
// recognition", 1998, figure 2, with ReLU and maximum pooling.
std::shared_ptr<nn::Module> make_lenet(const ModelOptions& options);

// Conv 20 k3, ReLU, AvgPool 2, Conv 50 k5, ReLU, AvgPool 2, Flatten, Linear 128-classes with ReLU between.
// 129,068 parameters for (28,28,1) and 10 classes. Source: Zhang et al., "Dive into deep learning", the chapter on
// training on several GPUs from scratch.
std::shared_ptr<nn::Module> make_lenet_d2l(const ModelOptions& options);

}  // namespace heddle::models
