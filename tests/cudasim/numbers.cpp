#include "tests/cudasim/numbers.h"

#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace cudasim {
namespace {

float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::uint16_t bfloat16_of(float value) {
  std::uint32_t bits = bits_of_float(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  // Half of the last place that stays, less one unless that place is odd: the carry rounds to nearest even.
  bits += 0x7fff + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>(bits >> 16);
}

template <class T>
T saturated(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  if (rounded <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (rounded >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(rounded);
}

// How one type of element is stored and converted.
template <class T>
struct Direct {
  using Stored = T;
  static double decode(T stored) { return static_cast<double>(stored); }
  static T encode(double value) {
    if constexpr (std::numeric_limits<T>::is_integer) {
      return saturated<T>(value);
    } else {
      return static_cast<T>(value);
    }
  }
};
struct Bfloat16 {
  using Stored = std::uint16_t;
  static double decode(Stored stored) { return float_of_bits(static_cast<std::uint32_t>(stored) << 16); }
  static Stored encode(double value) { return bfloat16_of(static_cast<float>(value)); }
};
struct Float16 {
  using Stored = std::uint16_t;
  static double decode(Stored stored) { return __half2float(__half(__half_raw{stored})); }
  static Stored encode(double value) { return __half_raw(__float2half_rn(static_cast<float>(value))).x; }
};

// Calls visit with the codec of the type; not for booleans, which have no address.
template <class Visitor>
void visit_codec(ElementType type, const Visitor& visit) {
  switch (type) {
    case ElementType::float32: return visit(Direct<float>{});
    case ElementType::float64: return visit(Direct<double>{});
    case ElementType::float16: return visit(Float16{});
    case ElementType::bfloat16: return visit(Bfloat16{});
    case ElementType::int8: return visit(Direct<std::int8_t>{});
    case ElementType::uint8: return visit(Direct<std::uint8_t>{});
    case ElementType::int32: return visit(Direct<std::int32_t>{});
    case ElementType::int64: return visit(Direct<std::int64_t>{});
    case ElementType::boolean: return;
  }
}

}  // namespace

const char* element_name(ElementType type) {
  switch (type) {
    case ElementType::float32: return "float32";
    case ElementType::float64: return "float64";
    case ElementType::float16: return "float16";
    case ElementType::bfloat16: return "bfloat16";
    case ElementType::int8: return "int8";
    case ElementType::uint8: return "uint8";
    case ElementType::int32: return "int32";
    case ElementType::int64: return "int64";
    case ElementType::boolean: return "boolean";
  }
  return "unknown";
}

std::int64_t element_bits(ElementType type) {
  std::int64_t bits = 1;
  visit_codec(type, [&](auto codec) { bits = 8 * sizeof(typename decltype(codec)::Stored); });
  return bits;
}

std::size_t bytes_of(ElementType type, std::int64_t numel) {
  return static_cast<std::size_t>((numel * element_bits(type) + 7) / 8);
}

double round_to(ElementType type, double value) {
  double rounded = value != 0 ? 1 : 0;
  visit_codec(type, [&](auto codec) { rounded = codec.decode(codec.encode(value)); });
  return rounded;
}

double round_to_tf32(double value) {
  const auto single = static_cast<float>(value);
  if (!std::isfinite(single)) return single;
  return float_of_bits((bits_of_float(single) + 0x1000) & ~std::uint32_t{0x1fff});
}

void read_elements(const void* array, const ElementRun& run, double* values) {
  if (run.type == ElementType::boolean) {
    const auto* bytes = static_cast<const std::uint8_t*>(array);
    for (std::int64_t i = 0; i < run.n; ++i) {
      const std::int64_t element = run.first + i * run.stride;
      values[i] = (bytes[element / 8] >> (element % 8)) & 1;
    }
    return;
  }
  visit_codec(run.type, [&](auto codec) {
    const auto* stored = static_cast<const typename decltype(codec)::Stored*>(array) + run.first;
    for (std::int64_t i = 0; i < run.n; ++i) values[i] = codec.decode(stored[i * run.stride]);
  });
}

void write_elements(void* array, const ElementRun& run, const double* values) {
  if (run.type == ElementType::boolean) {
    auto* bytes = static_cast<std::uint8_t*>(array);
    for (std::int64_t i = 0; i < run.n; ++i) {
      const std::int64_t element = run.first + i * run.stride;
      const auto bit = static_cast<std::uint8_t>(1u << (element % 8));
      auto& byte = bytes[element / 8];
      byte = static_cast<std::uint8_t>(values[i] != 0 ? byte | bit : byte & ~bit);
    }
    return;
  }
  visit_codec(run.type, [&](auto codec) {
    auto* stored = static_cast<typename decltype(codec)::Stored*>(array) + run.first;
    for (std::int64_t i = 0; i < run.n; ++i) stored[i * run.stride] = codec.encode(values[i]);
  });
}

}  // namespace cudasim
