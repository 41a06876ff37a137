// Kernels by the names that nvcc gives them, for the files that drop_in/make_kernel_table.py writes.
#pragma once

#include <initializer_list>

#include "tests/cudasim/shim/kernel_call.h"

namespace cudasim {

struct KernelTable {
  struct Row {
    const char* mangled;
    const void* code;
    KernelFactory factory;

    template <class... Parameters>
    Row(const char* name, void (*kernel)(Parameters...))
        : mangled(name), code(reinterpret_cast<const void*>(kernel)), factory(&TypedKernelCall<Parameters...>::make) {}
  };

  // Rows are known as soon as the library that holds the table is loaded.
  KernelTable(std::initializer_list<Row> rows) {
    for (const Row& row : rows) register_named_kernel(row.mangled, row.code, row.factory);
  }
};

}  // namespace cudasim
