// Moving averages of a model's weights in a checkpoint: one tensor for each parameter, in PyTorch's layout, under
// "optimizer/average/" and the parameter's name. Used by checkpoint.cpp only.
#pragma once

#include <string>
#include <vector>

#include "../nn/module.h"
#include "../nn/parameter_buffer.h"
#include "safetensors.h"
#include "state_dict.h"

namespace heddle::checkpoint::detail {

// "optimizer/average/NAME".
std::string average_name(const std::string& parameter);

// Whether the file holds any.
bool has_averages(const SafetensorsFile& file);

// Cuts flat values (host memory, laid out as `parameters`) into tensors with the names above.
StateDict split_averages(const nn::Module& model, const nn::ParameterBuffer& parameters, const Tensor& flat);

// The model's parameters in their order, in Heddle's layouts, in host memory. Throws: IoError if one is missing or of
// another type or shape.
std::vector<Tensor> read_averages(const nn::Module& model, const SafetensorsFile& file);

// The same as flat values, zero between the parameters.
Tensor read_flat_averages(const nn::Module& model, const nn::ParameterBuffer& parameters, const SafetensorsFile& file);

}  // namespace heddle::checkpoint::detail
