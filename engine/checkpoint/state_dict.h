// A model as named tensors in PyTorch's names and layouts, and back. Here, and nowhere else, Heddle's layouts meet
// PyTorch's: convolution weights (O,KH,KW,I) are (O,I,KH,KW) there, and a linear layer after a flatten has its columns
// in the order (C,H,W) instead of (H,W,C). The count of batches that PyTorch's batch norm keeps beside its running
// statistics ("num_batches_tracked") is passed over when it is read, and not written: PyTorch loads without it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../nn/module.h"
#include "safetensors.h"

namespace heddle::checkpoint {

// Host tensors by name, parameters first, then buffers.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

// Copies of all parameters and buffers. Blocks on a GPU.
StateDict state_dict(const nn::Module& module);

// Sets all parameters and buffers. Every name of the model must be there with the right shape, and no other; float
// values are converted to f32. Throws: InvalidArgument that lists what is missing (with the nearest name that is
// there), what is not known and what has another shape; the model is then unchanged.
void load_state_dict(nn::Module& module, const StateDict& state);

// The same from a file; IoError instead of InvalidArgument. Names that begin with ignored_prefix (if not empty) are
// left alone.
void load_state_dict(nn::Module& module, const SafetensorsFile& file, std::string_view ignored_prefix = {});

// Reads all values that load_state_dict would set, in the order of named_parameters() and named_buffers(), in Heddle's
// layouts and in host memory. Throws as load_state_dict. For loaders that must not change a model before all is read.
std::vector<Tensor> read_state(const nn::Module& module, const SafetensorsFile& file,
                               std::string_view ignored_prefix = {});
// Copies values from read_state() into the model.
void apply_state(nn::Module& module, const std::vector<Tensor>& values);

// Writes the model's weights to a safetensors file that PyTorch reads too; it appears whole or not at all.
// Throws: IoError, InvalidArgument.
void save_weights(const std::string& path, const nn::Module& module, const SafetensorsMetadata& metadata = {});
// Throws: IoError; the model is then unchanged.
void load_weights(const std::string& path, nn::Module& module);

// Layout of one host tensor as PyTorch has it, and the way back. They undo each other.
Tensor to_torch_layout(const Tensor& value, const nn::ParameterLayout& layout);
Tensor from_torch_layout(const Tensor& value, const nn::ParameterLayout& layout);
// Shape in PyTorch's layout.
Shape torch_shape(const Shape& shape, const nn::ParameterLayout& layout);

}  // namespace heddle::checkpoint
