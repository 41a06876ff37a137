#include "engine/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "engine/checkpoint/safetensors_header.h"

namespace heddle {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

// Exact. The exponent bias goes from 15 to 127; subnormal halves are normal floats.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide_exponent = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (fraction << 13));
}

template <class T>
float to_float(T value) {
  if constexpr (std::is_same_v<T, std::uint16_t>) {
    return half_to_float(value);
  } else {
    return static_cast<float>(value);  // IEEE: a double beyond the floats becomes infinite
  }
}

}  // namespace

const char* name_of(SafetensorsType type) noexcept {
  switch (type) {
    case SafetensorsType::f64: return "F64";
    case SafetensorsType::f32: return "F32";
    case SafetensorsType::f16: return "F16";
    case SafetensorsType::bf16: return "BF16";
    case SafetensorsType::i64: return "I64";
    case SafetensorsType::i32: return "I32";
    case SafetensorsType::u8: return "U8";
    case SafetensorsType::boolean: return "BOOL";
  }
  return "?";
}

std::size_t size_of(SafetensorsType type) noexcept {
  switch (type) {
    case SafetensorsType::f64:
    case SafetensorsType::i64: return 8;
    case SafetensorsType::f32:
    case SafetensorsType::i32: return 4;
    case SafetensorsType::f16:
    case SafetensorsType::bf16: return 2;
    case SafetensorsType::u8:
    case SafetensorsType::boolean: return 1;
  }
  return 1;
}

std::optional<DType> dtype_for(SafetensorsType type) noexcept {
  switch (type) {
    case SafetensorsType::f64: return DType::f64;
    case SafetensorsType::f32: return DType::f32;
    case SafetensorsType::f16: return std::nullopt;
    case SafetensorsType::bf16: return DType::bf16;
    case SafetensorsType::i64: return DType::i64;
    case SafetensorsType::i32: return DType::i32;
    case SafetensorsType::u8:
    case SafetensorsType::boolean: return DType::u8;
  }
  return std::nullopt;
}

SafetensorsType safetensors_type_for(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return SafetensorsType::f32;
    case DType::f64: return SafetensorsType::f64;
    case DType::bf16: return SafetensorsType::bf16;
    case DType::i32: return SafetensorsType::i32;
    case DType::i64: return SafetensorsType::i64;
    case DType::u8: return SafetensorsType::u8;
  }
  return SafetensorsType::u8;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result;
  result.path_ = path;
  result.file_.emplace(path);
  const InputFile& file = *result.file_;
  std::uint8_t length[8];
  if (file.read_at(0, length, 8) < 8) {
    throw IoError(path, join_text("is no safetensors file: need at least 10 bytes, got ", file.nbytes()));
  }
  const std::uint64_t nbytes =
      detail::safetensors_header_nbytes(length, std::max<std::uint64_t>(file.nbytes(), 8), path);
  std::string json(static_cast<std::size_t>(nbytes), '\0');
  if (const std::size_t got = file.read_at(8, json.data(), json.size()); got < json.size()) {
    throw IoError(path, join_text("became shorter while it was read: header needs ", nbytes, " bytes, got ", got));
  }
  result.header_ = detail::parse_safetensors_header(json, file.nbytes(), path);
  return result;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::uint8_t> bytes, const std::string& name) {
  SafetensorsFile result;
  result.path_ = name;
  result.memory_ = bytes;
  std::uint8_t length[8];
  if (bytes.size() < 8) {
    throw IoError(name, join_text("is no safetensors file: need at least 10 bytes, got ", bytes.size()));
  }
  std::memcpy(length, bytes.data(), 8);
  const std::uint64_t nbytes = detail::safetensors_header_nbytes(length, bytes.size(), name);
  const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<std::size_t>(nbytes));
  result.header_ = detail::parse_safetensors_header(json, bytes.size(), name);
  return result;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto& order = header_.name_order;
  const auto at = std::lower_bound(order.begin(), order.end(), name, [&](std::uint32_t i, std::string_view wanted) {
    return header_.entries[i].name < wanted;
  });
  if (at == order.end() || header_.entries[*at].name != name) return nullptr;
  return &header_.entries[*at];
}

void SafetensorsFile::read_at(std::uint64_t offset, void* destination, std::size_t nbytes,
                              const TensorEntry& entry) const {
  if (nbytes == 0) return;
  const std::uint64_t begin = header_.data_begin + offset;
  if (!file_) {
    HEDDLE_CHECK(begin <= memory_.size() && nbytes <= memory_.size() - begin, "safetensors: entry ",
                 detail::show_text(entry.name), " is not one of ", path_);
    std::memcpy(destination, memory_.data() + begin, nbytes);
    return;
  }
  if (const std::size_t got = file_->read_at(begin, destination, nbytes); got < nbytes) {
    throw IoError(path_, join_text("became shorter while it was read: tensor ", detail::show_text(entry.name),
                                   " needs ", nbytes, " bytes at byte ", begin, ", got ", got));
  }
}

void SafetensorsFile::read(const TensorEntry& entry, void* destination) const {
  read_at(entry.begin, destination, static_cast<std::size_t>(entry.nbytes()), entry);
}

void SafetensorsFile::read_f32(const TensorEntry& entry, float* destination) const {
  const auto convert = [&]<class T>(T) {
    std::vector<T> chunk(static_cast<std::size_t>(std::min<std::uint64_t>(entry.numel(), 65536)));
    for (std::uint64_t done = 0; done < entry.numel();) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(entry.numel() - done, chunk.size()));
      read_at(entry.begin + done * sizeof(T), chunk.data(), n * sizeof(T), entry);
      std::transform(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n), destination + done,
                     [](T value) { return to_float(value); });
      done += n;
    }
  };
  switch (entry.type) {
    case SafetensorsType::f32: return read(entry, destination);
    case SafetensorsType::f64: return convert(double{});
    case SafetensorsType::f16: return convert(std::uint16_t{});
    case SafetensorsType::bf16: return convert(bfloat16{});
    default: break;
  }
  throw NotSupported(join_text(path_, ": tensor ", detail::show_text(entry.name), " has dtype ", name_of(entry.type),
                               ", which is not read as floats"));
}

void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const SafetensorsMetadata& metadata) {
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(join_text("write_safetensors: ", path, ": ", reason));
  };
  const auto json_text = [&](const auto& value) {
    try {
      return nlohmann::json(value).dump();
    } catch (const nlohmann::json::exception&) {
      refuse("a name or an item of metadata is not valid UTF-8");
    }
    return std::string();
  };
  if (metadata.size() > kMaxSafetensorsEntries)
    refuse(join_text("more than ", kMaxSafetensorsEntries, " metadata items"));
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + json_text(metadata);
  std::vector<std::string_view> names;
  std::vector<std::uint64_t> sizes;
  std::uint64_t at = 0;
  if (tensors.size() > kMaxSafetensorsEntries) refuse(join_text("more than ", kMaxSafetensorsEntries, " tensors"));
  for (const TensorToWrite& tensor : tensors) {
    const std::string where = "tensor " + detail::show_text(tensor.name);
    if (const std::string why = detail::refuse_tensor_name(tensor.name); !why.empty()) refuse(where + " " + why);
    if (tensor.name == "__metadata__") refuse(where + " has a reserved name");
    if (tensor.shape.size() > kMaxSafetensorsRank) refuse(where + " has too many dimensions");
    std::uint64_t nbytes = 0;
    std::uint64_t end = 0;
    if (!detail::safetensors_nbytes(tensor.shape, tensor.type, nbytes) || __builtin_add_overflow(at, nbytes, &end) ||
        end > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse(where + " has a shape that is negative or too large");
    }
    if (tensor.data == nullptr && nbytes > 0) refuse(where + " has no data");
    // Not join_text: a global locale of the host program could put separators into numbers.
    json += json.size() > 1 ? "," : "";
    json += json_text(tensor.name) + ":{\"dtype\":\"" + name_of(tensor.type) +
            "\",\"shape\":" + json_text(tensor.shape) + ",\"data_offsets\":[" + json_text(at) + "," + json_text(end) +
            "]}";
    names.push_back(tensor.name);
    sizes.push_back(nbytes);
    at = end;
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    refuse(join_text("tensor ", detail::show_text(*twice), " is given twice"));
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxSafetensorsHeaderNbytes) {
    refuse(join_text("names and metadata need ", json.size(), " bytes, the limit is ", kMaxSafetensorsHeaderNbytes));
  }
  std::string head(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) head[i] = static_cast<char>((json.size() >> (8 * i)) & 255);
  AtomicFile file(path);
  file.write(head + json);
  for (std::size_t i = 0; i < tensors.size(); ++i) file.write(tensors[i].data, static_cast<std::size_t>(sizes[i]));
  file.commit();
}

}  // namespace heddle
