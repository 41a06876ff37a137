#include "engine/core/dtype.h"

#include <array>
#include <ostream>

namespace heddle {
namespace {
constexpr std::array kAll = {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8};
}

const char* name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

DType dtype_from_name(std::string_view name) {
  for (DType dtype : kAll) {
    if (name == name_of(dtype)) return dtype;
  }
  throw InvalidArgument(join_text("unknown dtype '", name, "'; one of f32, f64, bf16, i32, i64, u8"));
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace heddle
