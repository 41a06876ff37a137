// Linear layers: matrix products C (m,n) = sum over k of A(m,k) * B(k,n). A panel of columns of B is copied into
// scratch once, padded to full vectors, and stays in the cache while all rows of A pass over it.
#include "column_sums.h"
#include "conv_lanes.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

constexpr int kPanelVectors = kRegisters == 32 ? 3 : 2;
constexpr int kPanelRows = kRegisters == 32 ? 8 : 6;
constexpr std::int64_t kPanelWidth = kPanelVectors * kLanes;

// One tile of C: `valid` columns of a panel of V vectors. a[row * row_a + k * step_a], panel[k * V * kLanes + column].
struct GemmTile {
  const float* a;
  std::int64_t row_a, step_a;
  const float* panel;
  std::int64_t depth;
  std::int64_t valid;
  const float* bias;  // of the first column, or null
  const float* mask;  // of the first element, laid out like c, or null
  bool relu;
  bool accumulate;
  float* c;
  std::int64_t row_c;
};

// What is done with a finished vector of C before it is stored; n lanes of it are valid.
HEDDLE_INLINE void finish(const GemmTile& tile, std::int64_t row, std::int64_t column, Vec sum) {
  const std::int64_t n = min64(kLanes, tile.valid - column);
  const std::int64_t at = row * tile.row_c + column;
  if (n == kLanes) {
    if (tile.bias != nullptr) sum += load(tile.bias + column);
    if (tile.relu) sum = relu(sum);
    if (tile.mask != nullptr) sum = select(load(tile.mask + at) > Vec{}, sum, Vec{});
    if (tile.accumulate) sum += load(tile.c + at);
    store(tile.c + at, sum);
  } else if (n > 0) {
    if (tile.bias != nullptr) sum += load_first(tile.bias + column, n);
    if (tile.relu) sum = relu(sum);
    if (tile.mask != nullptr) sum = select(load_first(tile.mask + at, n) > Vec{}, sum, Vec{});
    if (tile.accumulate) sum += load_first(tile.c + at, n);
    store_first(tile.c + at, sum, n);
  }
}

template <int R, int V>
void gemm_tile(const GemmTile& tile) {
  Vec sum[R][V];
  HEDDLE_UNROLL
  for (int r = 0; r < R; ++r) {
    HEDDLE_UNROLL
    for (int v = 0; v < V; ++v) sum[r][v] = Vec{};
  }
  const float* a = tile.a;
  const float* b = tile.panel;
  for (std::int64_t k = 0; k < tile.depth; ++k, a += tile.step_a, b += V * kLanes) {
    Vec in[V];
    HEDDLE_UNROLL
    for (int v = 0; v < V; ++v) in[v] = load(b + v * kLanes);
    HEDDLE_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec value = broadcast(a[r * tile.row_a]);
      HEDDLE_UNROLL
      for (int v = 0; v < V; ++v) sum[r][v] += in[v] * value;
    }
  }
  HEDDLE_UNROLL
  for (int r = 0; r < R; ++r) {
    HEDDLE_UNROLL
    for (int v = 0; v < V; ++v) finish(tile, r, v * kLanes, sum[r][v]);
  }
}

using GemmFunction = void (*)(const GemmTile&);
// [vectors - 1][rows]
#if HEDDLE_SIMD_LANES == 16
#define HEDDLE_GEMM(v)                                                                                             \
  {                                                                                                                \
    nullptr, gemm_tile<1, v>, gemm_tile<2, v>, gemm_tile<3, v>, gemm_tile<4, v>, gemm_tile<5, v>, gemm_tile<6, v>, \
        gemm_tile<7, v>, gemm_tile<8, v>                                                                           \
  }
const GemmFunction kGemmFunctions[kPanelVectors][kPanelRows + 1] = {HEDDLE_GEMM(1), HEDDLE_GEMM(2), HEDDLE_GEMM(3)};
#else
#define HEDDLE_GEMM(v) \
  { nullptr, gemm_tile<1, v>, gemm_tile<2, v>, gemm_tile<3, v>, gemm_tile<4, v>, gemm_tile<5, v>, gemm_tile<6, v> }
const GemmFunction kGemmFunctions[kPanelVectors][kPanelRows + 1] = {HEDDLE_GEMM(1), HEDDLE_GEMM(2)};
#endif

// C rows [0, rows) for the columns of one packed panel.
void multiply_panel(GemmTile tile, std::int64_t rows, std::int64_t vectors) {
  const ChannelBlocks blocks = channel_blocks(rows, kPanelRows);
  for (std::int64_t block = 0; block < blocks.count; ++block) {
    const std::int64_t size = block_size(blocks, block);
    kGemmFunctions[vectors - 1][size](tile);
    tile.a += size * tile.row_a;
    tile.c += size * tile.row_c;
    if (tile.mask != nullptr) tile.mask += size * tile.row_c;
  }
}

// panel[k][column] = b[k * row_b + column] for `valid` columns, 0 up to the full width.
void copy_panel(const float* b, std::int64_t row_b, std::int64_t depth, std::int64_t valid, std::int64_t width,
                float* panel) {
  for (std::int64_t k = 0; k < depth; ++k, b += row_b, panel += width) {
    std::int64_t column = 0;
    for (; column + kLanes <= valid; column += kLanes) store(panel + column, load(b + column));
    if (column < valid) store(panel + column, load_first(b + column, valid - column));
  }
}

}  // namespace

std::size_t linear_scratch_floats(const LinearShape& s) {
  const std::int64_t depth = max64(s.rows, max64(s.in, s.out));
  return static_cast<std::size_t>(depth * kPanelWidth);
}

void linear_forward(const LinearShape& s, const LinearForward& args, Range rows) {
  if (rows.begin >= rows.end) return;
  const ChannelBlocks panels = channel_blocks(ceil_div(s.out, kLanes), kPanelVectors);
  for (std::int64_t panel = 0, first = 0; panel < panels.count; ++panel) {
    const std::int64_t vectors = block_size(panels, panel);
    const std::int64_t width = vectors * kLanes;
    const std::int64_t valid = min64(width, s.out - first);
    images_to_lanes(args.w + first * s.in, {s.in, valid, s.in}, width, args.scratch);
    const GemmTile tile = {.a = args.x + rows.begin * s.in,
                           .row_a = s.in,
                           .step_a = 1,
                           .panel = args.scratch,
                           .depth = s.in,
                           .valid = valid,
                           .bias = args.bias != nullptr ? args.bias + first : nullptr,
                           .mask = nullptr,
                           .relu = args.relu,
                           .accumulate = false,
                           .c = args.y + rows.begin * s.out + first,
                           .row_c = s.out};
    multiply_panel(tile, rows.end - rows.begin, vectors);
    first += width;
  }
}

void linear_backward_data(const LinearShape& s, const LinearBackwardData& args, Range rows) {
  if (rows.begin >= rows.end) return;
  const ChannelBlocks panels = channel_blocks(ceil_div(s.in, kLanes), kPanelVectors);
  for (std::int64_t panel = 0, first = 0; panel < panels.count; ++panel) {
    const std::int64_t vectors = block_size(panels, panel);
    const std::int64_t width = vectors * kLanes;
    const std::int64_t valid = min64(width, s.in - first);
    copy_panel(args.w + first, s.in, s.out, valid, width, args.scratch);
    const std::int64_t at = rows.begin * s.in + first;
    const GemmTile tile = {.a = args.dy + rows.begin * s.out,
                           .row_a = s.out,
                           .step_a = 1,
                           .panel = args.scratch,
                           .depth = s.out,
                           .valid = valid,
                           .bias = nullptr,
                           .mask = args.relu_mask != nullptr ? args.relu_mask + at : nullptr,
                           .relu = false,
                           .accumulate = args.accumulate,
                           .c = args.dx + at,
                           .row_c = s.in};
    multiply_panel(tile, rows.end - rows.begin, vectors);
    first += width;
  }
}

void linear_backward_weight(const LinearShape& s, const LinearBackwardWeight& args, Range in_features) {
  const std::int64_t columns = in_features.end - in_features.begin;
  if (columns <= 0) return;
  const ChannelBlocks panels = channel_blocks(ceil_div(columns, kLanes), kPanelVectors);
  for (std::int64_t panel = 0, first = in_features.begin; panel < panels.count; ++panel) {
    const std::int64_t vectors = block_size(panels, panel);
    const std::int64_t width = vectors * kLanes;
    const std::int64_t valid = min64(width, in_features.end - first);
    copy_panel(args.x + first, s.in, s.rows, valid, width, args.scratch);
    const GemmTile tile = {.a = args.dy,
                           .row_a = 1,
                           .step_a = s.out,
                           .panel = args.scratch,
                           .depth = s.rows,
                           .valid = valid,
                           .bias = nullptr,
                           .mask = nullptr,
                           .relu = false,
                           .accumulate = args.accumulate,
                           .c = args.dw + first,
                           .row_c = s.in};
    multiply_panel(tile, s.out, vectors);
    first += width;
  }
}

std::size_t column_sums_scratch_floats(std::int64_t columns) {
  return static_cast<std::size_t>(column_sums_floats(columns));
}

void column_sums(const float* x, std::int64_t rows, std::int64_t columns, bool accumulate, float* sums,
                 float* scratch) {
  const std::int64_t count = column_sums_floats(columns);
  for (std::int64_t i = 0; i < count; ++i) scratch[i] = 0.0f;
  add_to_column_sums(x, rows, columns, scratch);
  finish_column_sums(scratch, columns, accumulate, sums);
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
