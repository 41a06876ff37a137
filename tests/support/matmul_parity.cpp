#include "tests/support/matmul_parity.h"

#include <utility>
#include <vector>

#include "engine/backend/backend.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/parity.h"

namespace heddle::testing {

using reference::Arrays;

namespace {

struct MatmulRow {
  std::int64_t batch, m, n, k;  // batch 0: rank 2
};
const MatmulRow kMatmuls[] = {{0, 1, 1, 1},   {0, 3, 5, 7},     {0, 64, 48, 32}, {0, 33, 17, 129}, {0, 4, 6, 0},
                              {0, 0, 5, 3},   {0, 5, 0, 3},     {1, 4, 3, 2},    {3, 5, 4, 6},     {2, 1, 9, 1},
                              {0, 1, 300, 5}, {0, 300, 1, 200}, {5, 16, 16, 16}, {2, 0, 3, 4},     {0, 100, 90, 80}};

struct LinearRow {
  std::int64_t rows, in, out;
};
const LinearRow kLinears[] = {{1, 1, 1}, {256, 256, 120}, {256, 120, 84}, {256, 84, 10}, {64, 800, 128}, {7, 33, 65},
                              {0, 5, 3}, {17, 3, 1},      {1, 512, 10},   {100, 2, 50},  {3, 130, 31}};

double tolerance_for(std::int64_t n) { return n < 64 ? 2 : n < 300 ? 6 : 20; }

}  // namespace

void expect_matmul(Device device) {
  Backend& backend = backend_for(device);
  const std::vector<DType> dtypes = float_dtypes(device);
  for (const MatmulRow& r : kMatmuls) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      const MatmulParams params{.transpose_a = (transposes & 1) != 0, .transpose_b = (transposes & 2) != 0};
      const auto shape = [&](std::int64_t rows, std::int64_t columns, bool transposed) {
        if (transposed) std::swap(rows, columns);
        return r.batch == 0 ? Shape{rows, columns} : Shape{r.batch, rows, columns};
      };
      expect_parity(
          {.name = join_text("matmul batch ", r.batch, " m ", r.m, " n ", r.n, " k ", r.k, " transposes ", transposes),
           .inputs = {random_input(shape(r.m, r.k, params.transpose_a)),
                      random_input(shape(r.k, r.n, params.transpose_b))},
           .outputs = {{shape(r.m, r.n, false)}},
           .call = [&](auto& in, auto& out, WriteMode mode) { backend.matmul(in[0], in[1], params, out[0], mode); },
           .reference = [&](const Arrays& in) { return Arrays{reference::matmul(in[0], in[1], params)}; },
           .write_modes = true,
           .thread_invariant = false,
           .tolerance = tolerance_for(r.k),
           .dtypes = dtypes},
          device);
    }
  }
}

void expect_linear_forward(Device device) {
  Backend& backend = backend_for(device);
  const std::vector<DType> dtypes = float_dtypes(device);
  for (const LinearRow& r : kLinears) {
    for (const bool relu : {false, true}) {
      for (const bool bias : {false, true}) {
        expect_parity(
            {.name = join_text("linear_forward rows ", r.rows, " in ", r.in, " out ", r.out),
             .inputs = {random_input({r.rows, r.in}), random_input({r.out, r.in}),
                        bias ? random_input({r.out}) : no_input()},
             .outputs = {{{r.rows, r.out}}},
             .call = [&](auto& in, auto& out, WriteMode) { backend.linear_forward(in[0], in[1], in[2], relu, out[0]); },
             .reference =
                 [&](const Arrays& in) { return Arrays{reference::linear_forward(in[0], in[1], in[2], relu)}; },
             .thread_invariant = false,
             .tolerance = tolerance_for(r.in),
             .dtypes = dtypes},
            device);
      }
    }
  }
}

void expect_linear_backward(Device device) {
  Backend& backend = backend_for(device);
  const std::vector<DType> dtypes = float_dtypes(device);
  for (const LinearRow& r : kLinears) {
    for (const bool mask : {false, true}) {
      expect_parity(
          {.name = join_text("linear_backward_data rows ", r.rows, " in ", r.in, " out ", r.out),
           .inputs = {random_input({r.rows, r.out}), random_input({r.out, r.in}),
                      mask ? random_input({r.rows, r.in}) : no_input()},
           .outputs = {{{r.rows, r.in}}},
           .call = [&](auto& in, auto& out,
                       WriteMode mode) { backend.linear_backward_data(in[0], in[1], in[2], out[0], mode); },
           .reference = [&](const Arrays& in) { return Arrays{reference::linear_backward_data(in[0], in[1], in[2])}; },
           .write_modes = true,
           .thread_invariant = false,
           .tolerance = tolerance_for(r.out),
           .dtypes = dtypes},
          device);
    }
    for (const bool bias : {false, true}) {
      std::vector<ParityOutput> outputs = {{Shape{r.out, r.in}}};
      if (bias) outputs.push_back({Shape{r.out}});
      expect_parity({.name = join_text("linear_backward_weight rows ", r.rows, " in ", r.in, " out ", r.out),
                     .inputs = {random_input({r.rows, r.in}), random_input({r.rows, r.out})},
                     .outputs = outputs,
                     .call =
                         [&](auto& in, auto& out, WriteMode mode) {
                           backend.linear_backward_weight(in[0], in[1], out[0], bias ? &out[1] : nullptr, mode);
                         },
                     .reference =
                         [&](const Arrays& in) {
                           Arrays expected = {reference::linear_backward_weight(in[0], in[1])};
                           if (bias) expected.push_back(reference::bias_gradient(in[1]));
                           return expected;
                         },
                     .write_modes = true,
                     .thread_invariant = false,
                     .tolerance = tolerance_for(r.rows),
                     .dtypes = dtypes},
                    device);
    }
  }
}

}  // namespace heddle::testing
