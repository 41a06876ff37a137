#include "engine/checkpoint/state_dict.h"

#include <algorithm>
#include <functional>

#include "engine/checkpoint/checksum.h"
#include "engine/checkpoint/safetensors_header.h"
#include "engine/core/text.h"

namespace heddle::checkpoint {
namespace {

constexpr std::size_t kMaxListed = 8;  // names of one kind in a message

std::vector<nn::NamedVariable> all_variables(const nn::Module& module) {
  std::vector<nn::NamedVariable> all = module.named_parameters();
  for (nn::NamedVariable& buffer : module.named_buffers()) all.push_back(std::move(buffer));
  return all;
}

// A named tensor that may be read, wherever it comes from.
struct Offered {
  std::string name;
  Shape shape;
  std::string type;  // for messages
  bool is_float = false;
  std::function<Tensor(DType wanted)> read;  // host memory, offered shape
  DType dtype = DType::f32;                  // if not is_float
};

// Lines of one kind, shortened.
void append_list(std::string& message, const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  if (!message.empty()) message += "; ";
  message += join_text(title, " ");
  const auto shown = static_cast<std::ptrdiff_t>(std::min(lines.size(), kMaxListed));
  message += join_names(std::vector<std::string>(lines.begin(), lines.begin() + shown));
  if (lines.size() > kMaxListed) message += join_text(" and ", lines.size() - kMaxListed, " more");
}

// PyTorch's batch norm counts its batches beside its running statistics, which have no use for the count here.
// expected: sorted names of the model.
bool is_batch_count(std::string_view name, const std::vector<std::string>& expected) {
  constexpr std::string_view kCount = "num_batches_tracked";
  if (name.size() < kCount.size() || name.substr(name.size() - kCount.size()) != kCount) return false;
  const std::string mean = std::string(name.substr(0, name.size() - kCount.size())) + "running_mean";
  return std::binary_search(expected.begin(), expected.end(), mean);
}

// The offered tensor of each variable, in order. `problems` stays empty if all fit and nothing is left over.
std::vector<const Offered*> match(const std::vector<nn::NamedVariable>& variables, const std::vector<Offered>& offered,
                                  std::string& problems) {
  std::vector<const Offered*> by_name;
  for (const Offered& o : offered) by_name.push_back(&o);
  const auto less = [](const Offered* a, const Offered* b) { return a->name < b->name; };
  std::sort(by_name.begin(), by_name.end(), less);
  std::vector<std::string> expected;
  for (const nn::NamedVariable& v : variables) expected.push_back(v.name);
  std::sort(expected.begin(), expected.end());

  std::vector<std::string> unexpected_names;
  for (const Offered* o : by_name) {
    const bool is_known = std::binary_search(expected.begin(), expected.end(), o->name);
    if (!is_known && !is_batch_count(o->name, expected)) unexpected_names.push_back(o->name);
  }
  std::vector<std::string> missing, misshaped, mistyped, unexpected;
  std::vector<const Offered*> matched;
  for (const nn::NamedVariable& v : variables) {
    const auto at = std::lower_bound(by_name.begin(), by_name.end(), v.name,
                                     [](const Offered* o, const std::string& name) { return o->name < name; });
    if (at == by_name.end() || (*at)->name != v.name) {
      // A name that is there but not wanted is most likely the misspelt one. A hostile file may hold very many.
      const bool few = unexpected_names.size() <= 1000 && missing.size() < kMaxListed;
      const std::string nearest = few ? nearest_name(v.name, unexpected_names) : std::string();
      missing.push_back("'" + v.name + "'" +
                        (nearest.empty() ? "" : " (is it " + heddle::detail::show_text(nearest) + "?)"));
      continue;
    }
    const Offered& o = **at;
    const Shape wanted = torch_shape(v.variable.shape(), v.layout);
    const bool want_float = is_floating(v.variable.dtype());
    if (o.shape != wanted) {
      misshaped.push_back(join_text("'", v.name, "' is ", o.shape, ", the model has ", wanted));
    } else if (o.is_float != want_float || (!want_float && o.dtype != v.variable.dtype())) {
      mistyped.push_back(join_text("'", v.name, "' is ", o.type, ", the model has ", v.variable.dtype()));
    }
    matched.push_back(&o);
  }
  for (const std::string& name : unexpected_names) unexpected.push_back(heddle::detail::show_text(name));
  append_list(problems, "missing:", missing);
  append_list(problems, "not in the model:", unexpected);
  append_list(problems, "other shape:", misshaped);
  append_list(problems, "other type:", mistyped);
  return matched;
}

// Values in Heddle's layouts, or an empty list and `problems`.
std::vector<Tensor> read_matching(const nn::Module& module, const std::vector<Offered>& offered,
                                  std::string& problems) {
  const std::vector<nn::NamedVariable> variables = all_variables(module);
  const std::vector<const Offered*> matched = match(variables, offered, problems);
  std::vector<Tensor> values;
  if (!problems.empty()) return values;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    values.push_back(from_torch_layout(matched[i]->read(variables[i].variable.dtype()), variables[i].layout));
  }
  return values;
}

// Float tensor x on the host as another float type.
Tensor convert_float(const Tensor& x, DType wanted) {
  if (x.dtype() == wanted) return x;
  std::vector<double> values;
  if (x.dtype() == DType::f32) {
    const auto from = x.to_vector<float>();
    values.assign(from.begin(), from.end());
  } else if (x.dtype() == DType::f64) {
    values = x.to_vector<double>();
  } else {
    for (const bfloat16 v : x.to_vector<bfloat16>()) values.push_back(static_cast<double>(static_cast<float>(v)));
  }
  if (wanted == DType::f64) return Tensor::from_values(values, x.shape());
  if (wanted == DType::f32) return Tensor::from_values(std::vector<float>(values.begin(), values.end()), x.shape());
  std::vector<bfloat16> narrow;
  for (const double v : values) narrow.emplace_back(static_cast<float>(v));
  return Tensor::from_values(narrow, x.shape());
}

// A size of 0 lets the other sizes be anything, so the shape may be one that no tensor can have.
Shape shape_of(const TensorEntry& entry, const std::string& path) {
  try {
    return Shape(entry.shape);
  } catch (const InvalidArgument& e) {
    throw IoError(path, join_text("tensor ", heddle::detail::show_text(entry.name), ": ", e.what()));
  }
}

std::vector<Offered> offers_of(const SafetensorsFile& file, std::string_view ignored_prefix) {
  std::vector<Offered> offered;
  for (const TensorEntry& entry : file.entries()) {
    if (!ignored_prefix.empty() && entry.name.compare(0, ignored_prefix.size(), ignored_prefix) == 0) continue;
    Offered o{entry.name, shape_of(entry, file.path()), heddle::name_of(entry.type), true, {}, DType::f32};
    const std::optional<DType> dtype = dtype_for(entry.type);
    if (dtype.has_value() && !is_floating(*dtype)) {
      o.is_float = false;
      o.dtype = *dtype;
    }
    o.read = [&file, &entry, o_shape = o.shape](DType wanted) {
      if (!is_floating(wanted)) {
        Tensor value = Tensor::empty(o_shape, wanted);
        file.read(entry, value.mutable_raw_data());
        return value;
      }
      if (dtype_for(entry.type) == wanted) {
        Tensor value = Tensor::empty(o_shape, wanted);
        file.read(entry, value.mutable_raw_data());
        return value;
      }
      Tensor value = Tensor::empty(o_shape, DType::f32);
      file.read_f32(entry, value.mutable_host_data<float>());
      return convert_float(value, wanted);
    };
    offered.push_back(std::move(o));
  }
  return offered;
}

}  // namespace

StateDict state_dict(const nn::Module& module) {
  StateDict state;
  for (const nn::NamedVariable& v : all_variables(module)) {
    Tensor host = v.variable.data().to(Device::cpu());
    Tensor value = to_torch_layout(host, v.layout);
    // to() and a plain layout make no copy, and the model goes on changing.
    state.emplace_back(v.name, value.same_memory(v.variable.data()) ? value.clone() : value);
  }
  return state;
}

void load_state_dict(nn::Module& module, const StateDict& state) {
  std::vector<Offered> offered;
  for (const auto& [name, value] : state) {
    const Tensor& tensor = value;
    HEDDLE_CHECK(tensor.defined(), "load_state_dict: '", name, "' has no value");
    offered.push_back({name, tensor.shape(), heddle::name_of(tensor.dtype()), is_floating(tensor.dtype()),
                       [&tensor](DType wanted) {
                         const Tensor host = tensor.to(Device::cpu());
                         return is_floating(wanted) ? convert_float(host, wanted) : host;
                       },
                       tensor.dtype()});
  }
  std::string problems;
  const std::vector<Tensor> values = read_matching(module, offered, problems);
  HEDDLE_CHECK(problems.empty(), "load_state_dict: the tensors do not fit the model: ", problems);
  apply_state(module, values);
}

std::vector<Tensor> read_state(const nn::Module& module, const SafetensorsFile& file, std::string_view ignored_prefix) {
  std::string problems;
  std::vector<Tensor> values = read_matching(module, offers_of(file, ignored_prefix), problems);
  if (!problems.empty()) throw IoError(file.path(), "does not fit the model: " + problems);
  return values;
}

void apply_state(nn::Module& module, const std::vector<Tensor>& values) {
  std::vector<nn::NamedVariable> variables = all_variables(module);
  HEDDLE_CHECK(values.size() == variables.size(), "apply_state: ", values.size(), " values for ", variables.size(),
               " parameters and buffers");
  for (std::size_t i = 0; i < values.size(); ++i) variables[i].variable.mutable_data().copy_from(values[i]);
}

void load_state_dict(nn::Module& module, const SafetensorsFile& file, std::string_view ignored_prefix) {
  apply_state(module, read_state(module, file, ignored_prefix));
}

void save_weights(const std::string& path, const nn::Module& module, const SafetensorsMetadata& metadata) {
  const StateDict state = state_dict(module);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, value] : state) {
    const auto dims = value.shape().dims();
    tensors.push_back({name, safetensors_type_for(value.dtype()), {dims.begin(), dims.end()}, value.raw_data()});
  }
  write_with_checksum(path, tensors, metadata);
}

void load_weights(const std::string& path, nn::Module& module) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const std::vector<Tensor> values = read_state(module, file);
  verify_checksum(file);
  apply_state(module, values);
}

}  // namespace heddle::checkpoint
