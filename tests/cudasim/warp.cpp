// Warp operations; see the header.
#include "tests/cudasim/warp.h"

#include <algorithm>

#include "tests/cudasim/internal.h"

namespace cudasim {
namespace {

bool has(unsigned mask, unsigned lane) { return (mask >> lane & 1u) != 0; }

}  // namespace

void Warp::start(unsigned alive) {
  alive_ = alive;
  arrived_ = 0;
}

bool Warp::arrive(unsigned lane, const Request& request, const char* kernel) {
  if (!has(request.mask, lane)) {
    die("kernel %s: lane %u calls a warp operation at line %d with mask %08x, which leaves it out", kernel, lane,
        request.line, request.mask);
  }
  if (request.width <= 0 || request.width > 32 || (request.width & (request.width - 1)) != 0) {
    die("kernel %s: shuffle at line %d with width %d, which is no power of two up to 32", kernel, request.line,
        request.width);
  }
  requests_[lane] = request;
  arrived_ |= 1u << lane;
  if ((arrived_ & request.mask) != request.mask) {
    if ((alive_ & request.mask) != request.mask) {
      die("kernel %s: the mask %08x of a warp operation at line %d names lanes that have ended or never were (%08x)",
          kernel, request.mask, request.line, request.mask & ~alive_);
    }
    return false;
  }
  for (unsigned i = 0; i < 32; ++i) {
    if (!has(request.mask, i)) continue;
    if (requests_[i].mask != request.mask || requests_[i].line != request.line || requests_[i].op != request.op) {
      die("kernel %s: lanes of one warp disagree on an operation: lane %u is at line %d with mask %08x, lane %u at "
          "line %d with mask %08x",
          kernel, lane, request.line, request.mask, i, requests_[i].line, requests_[i].mask);
    }
  }
  answer(request.mask);
  arrived_ &= ~request.mask;
  return true;
}

unsigned Warp::source_lane(unsigned lane) const {
  const Request& request = requests_[lane];
  const int last = request.width - 1;
  const int begin = static_cast<int>(lane) & ~last;
  const int inside = static_cast<int>(lane) & last;
  int source = inside;
  switch (request.op) {
    case WarpOp::shuffle: source = request.argument & last; break;
    case WarpOp::shuffle_up: source = inside - request.argument >= 0 ? inside - request.argument : inside; break;
    case WarpOp::shuffle_down: source = inside + request.argument <= last ? inside + request.argument : inside; break;
    case WarpOp::shuffle_xor: {
      const int other = static_cast<int>(lane) ^ request.argument;
      source = other <= begin + last ? other - begin : inside;
      break;
    }
    default: break;
  }
  return static_cast<unsigned>(begin + source) & 31u;
}

std::uint64_t Warp::combine(WarpOp op, unsigned mask) const {
  bool first = true;
  std::uint32_t total = 0;
  for (unsigned i = 0; i < 32; ++i) {
    if (!has(mask, i)) continue;
    const auto value = static_cast<std::uint32_t>(requests_[i].value);
    if (first) {
      total = value;
      first = false;
      continue;
    }
    switch (op) {
      case WarpOp::reduce_add: total += value; break;
      case WarpOp::reduce_min: total = std::min(total, value); break;
      case WarpOp::reduce_max: total = std::max(total, value); break;
      case WarpOp::reduce_min_signed:
        total =
            static_cast<std::uint32_t>(std::min(static_cast<std::int32_t>(total), static_cast<std::int32_t>(value)));
        break;
      case WarpOp::reduce_max_signed:
        total =
            static_cast<std::uint32_t>(std::max(static_cast<std::int32_t>(total), static_cast<std::int32_t>(value)));
        break;
      case WarpOp::reduce_and: total &= value; break;
      case WarpOp::reduce_or: total |= value; break;
      default: total ^= value; break;
    }
  }
  return total;
}

void Warp::answer(unsigned mask) {
  const auto first = static_cast<unsigned>(__builtin_ctz(mask));
  const WarpOp op = requests_[first].op;
  std::uint64_t common = 0;
  if (op == WarpOp::ballot) {
    for (unsigned i = 0; i < 32; ++i) common |= has(mask, i) && requests_[i].value != 0 ? 1ull << i : 0ull;
  } else if (op == WarpOp::match_all) {
    common = mask;
    for (unsigned i = 0; i < 32; ++i) {
      if (has(mask, i) && requests_[i].value != requests_[first].value) common = 0;
    }
  } else if (op >= WarpOp::reduce_add) {
    common = combine(op, mask);
  }
  for (unsigned i = 0; i < 32; ++i) {
    if (!has(mask, i)) continue;
    switch (op) {
      case WarpOp::shuffle:
      case WarpOp::shuffle_up:
      case WarpOp::shuffle_down:
      case WarpOp::shuffle_xor: {
        const unsigned source = source_lane(i);
        results_[i] = has(mask, source) ? requests_[source].value : ~0ull;
        break;
      }
      case WarpOp::match_any:
        results_[i] = 0;
        for (unsigned j = 0; j < 32; ++j) {
          if (has(mask, j) && requests_[j].value == requests_[i].value) results_[i] |= 1ull << j;
        }
        break;
      default: results_[i] = common; break;
    }
  }
}

}  // namespace cudasim
