// Numbers as GPU libraries store them: element types, their rounding, and strided reads and writes as double. Used by
// the doubles of cuBLAS, cuDNN and NCCL; knows none of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cudasim {

enum class ElementType { float32, float64, float16, bfloat16, int8, uint8, int32, int64, boolean };

const char* element_name(ElementType type);
// Size of an element in bits: a boolean has one.
std::int64_t element_bits(ElementType type);
// Bytes that numel elements take, one after the other.
std::size_t bytes_of(ElementType type, std::int64_t numel);

// The nearest value that the type can hold, ties to even. Floats keep NaN and overflow to infinity; integers saturate
// and take NaN as 0; a boolean is 1 for everything but 0. 16-bit floats are rounded by way of float, as hardware that
// accumulates in float does.
double round_to(ElementType type, double value);
// The nearest value with the 10 fraction bits of TF32, ties away from zero as cvt.rna.tf32 has it.
double round_to_tf32(double value);

// A run of n elements of an array, `stride` elements apart, the first one at element `first` of the array. Element i of
// a boolean array is bit i % 8 (the lowest is bit 0) of byte i / 8.
struct ElementRun {
  ElementType type = ElementType::float32;
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t n = 0;
};
void read_elements(const void* array, const ElementRun& run, double* values);
// Rounds with round_to().
void write_elements(void* array, const ElementRun& run, const double* values);

}  // namespace cudasim
