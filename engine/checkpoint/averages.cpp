#include "engine/checkpoint/averages.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace heddle::checkpoint::detail {
namespace {

constexpr const char* kPrefix = "optimizer/average/";

// The places of the model's parameters: both lists have one order.
void check_same(const std::vector<nn::NamedVariable>& named, const nn::ParameterBuffer& parameters) {
  const auto& segments = parameters.segments();
  HEDDLE_CHECK(
      named.size() == segments.size() && std::equal(named.begin(), named.end(), segments.begin(),
                                                    [](const nn::NamedVariable& n, const nn::ParameterSegment& s) {
                                                      return n.name == s.name && n.variable.numel() == s.numel;
                                                    }),
      "checkpoint: the optimiser updates another model's parameters");
}

}  // namespace

std::string average_name(const std::string& parameter) { return kPrefix + parameter; }

bool has_averages(const SafetensorsFile& file) {
  return std::any_of(file.entries().begin(), file.entries().end(),
                     [](const TensorEntry& entry) { return entry.name.starts_with(kPrefix); });
}

StateDict split_averages(const nn::Module& model, const nn::ParameterBuffer& parameters, const Tensor& flat) {
  const std::vector<nn::NamedVariable> named = model.named_parameters();
  check_same(named, parameters);
  StateDict averages;
  for (std::size_t i = 0; i < named.size(); ++i) {
    const Tensor value = flat.slice_of_flat(parameters.segments()[i].begin, named[i].variable.shape());
    averages.emplace_back(average_name(named[i].name), to_torch_layout(value, named[i].layout));
  }
  return averages;
}

std::vector<Tensor> read_averages(const nn::Module& model, const SafetensorsFile& file) {
  std::vector<Tensor> values;
  for (const nn::NamedVariable& p : model.named_parameters()) {
    const TensorEntry* const entry = file.find(average_name(p.name));
    const Shape shape = torch_shape(p.variable.shape(), p.layout);
    const std::vector<std::int64_t> wanted(shape.dims().begin(), shape.dims().end());
    if (entry == nullptr || entry->type != SafetensorsType::f32 || entry->shape != wanted) {
      throw IoError(file.path(), join_text("does not fit the model: the moving average of '", p.name, "' is ",
                                           entry == nullptr ? "missing" : "of another type or shape"));
    }
    Tensor value = Tensor::empty(shape, DType::f32);
    file.read(*entry, value.mutable_raw_data());
    values.push_back(from_torch_layout(value, p.layout));
  }
  return values;
}

Tensor read_flat_averages(const nn::Module& model, const nn::ParameterBuffer& parameters, const SafetensorsFile& file) {
  check_same(model.named_parameters(), parameters);
  const std::vector<Tensor> values = read_averages(model, file);
  Tensor flat = Tensor::zeros({parameters.segments().back().end}, DType::f32);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const nn::ParameterSegment& segment = parameters.segments()[i];
    flat.narrow(segment.begin, segment.numel).copy_from(values[i].reshape({segment.numel}));
  }
  return flat;
}

}  // namespace heddle::checkpoint::detail
