// Choosing a token of each row of float32 logits.
#pragma once

#include <cmath>
#include <limits>

#include "norm.h"

namespace pagedd {

constexpr int64_t BLOCK = 512;  // numbers whose weights are summed before sums are summed

struct Largest {
  float value;
  bool valid;  // no NaN, and something finite
};

inline Largest largest(const float* x, int64_t n) {
  const vf none = set1(-std::numeric_limits<float>::infinity());
  vf top = none, span = zero();
  for (int64_t i = 0; i < n; i += W) {
    const int in = static_cast<int>(std::min<int64_t>(W, n - i));
    const vf v = in == W ? load(x + i) : keep(load_n(x + i, in), none, 0, in);
    top = larger(v, top);
    span = fma(v, zero(), span);  // NaN stays; infinities become NaN too and are told apart below
  }
  if (!any_nan(span)) return {hmax(top), n > 0};
  bool finite = false;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return {0.0f, false};
    finite = finite || std::isfinite(x[i]);
  }
  return {hmax(top), finite};
}

// The least index of a number that is in the row.
inline int64_t index_of(const float* x, int64_t n, float value) {
  const vf below = set1(std::nextafter(value, -std::numeric_limits<float>::infinity()));
  int64_t i = 0;
  while (n - i >= W && !any_greater(load(x + i), below)) i += W;
  while (i < n - 1 && x[i] != value) ++i;
  return i;
}

// The least index of the largest number of each row; -1: a NaN, or nothing finite.
inline void argmax(Pool& pool, const float* x, int64_t stride, int64_t rows, int64_t n,
                   int64_t* out) {
  for_rows(pool, rows, n, [=](int64_t r, int) {
    const Largest top = largest(x + r * stride, n);
    out[r] = top.valid ? index_of(x + r * stride, n, top.value) : -1;
  });
}

// e^((x - top) * inverse temperature) of W numbers; those from n on are 0.
inline vf weights(const float* x, int64_t n, float top, float inverse) {
  const float scale = inverse * LOG2_E;
  if (n >= W) return exp2((load(x) - set1(top)) * set1(scale));
  const vf v = exp2((load_n(x, static_cast<int>(n)) - set1(top)) * set1(scale));
  return keep(v, zero(), 0, static_cast<int>(n));
}

inline double block_weight(const float* x, int64_t n, float top, float inverse) {
  vf sum = zero();
  for (int64_t i = 0; i < n; i += W) sum = sum + weights(x + i, n - i, top, inverse);
  return static_cast<double>(hsum(sum));
}

// The first index in the block at which the running sum exceeds target; else the last with weight.
inline int64_t find(const float* x, int64_t n, float top, float inverse, double target) {
  int64_t last = 0;
  double sum = 0.0;
  for (int64_t i = 0; i < n; i += W) {
    float w[W];
    store(w, weights(x + i, n - i, top, inverse));
    for (int64_t j = 0; j < std::min<int64_t>(W, n - i); ++j) {
      sum += static_cast<double>(w[j]);
      if (w[j] > 0.0f) last = i + j;
      if (sum > target) return last;
    }
  }
  return last;
}

inline int64_t draw_row(const float* x, int64_t n, float inverse, double u, double* blocks) {
  const Largest top = largest(x, n);
  if (!top.valid || std::isinf(top.value)) return -1;
  double total = 0.0;
  for (int64_t i = 0; i < n; i += BLOCK) {
    total += block_weight(x + i, std::min(BLOCK, n - i), top.value, inverse);
    blocks[i / BLOCK] = total;
  }
  const double target = u * total;
  int64_t block = 0, last = ceil_div(n, BLOCK) - 1;
  while (block < last && blocks[block] <= target) ++block;
  // a target that rounding puts past all weight belongs to the last block that has some
  while (block > 0 && blocks[block] == blocks[block - 1]) --block;
  const double before = block > 0 ? blocks[block - 1] : 0.0;
  const float* start = x + block * BLOCK;
  return block * BLOCK +
         find(start, std::min(BLOCK, n - block * BLOCK), top.value, inverse, target - before);
}

// One index of each row, with probability as softmax(x * inverse temperature), by the inverse of
// the distribution at u in [0, 1); -1: a NaN, +inf, or nothing finite.
inline void draw(Pool& pool, const float* x, int64_t stride, int64_t rows, int64_t n,
                 const float* inverse, const double* u, int64_t* out) {
  for_rows(pool, rows, n, [=, &pool](int64_t r, int worker) {
    const size_t bytes = static_cast<size_t>(ceil_div(n, BLOCK)) * sizeof(double);
    auto* blocks = reinterpret_cast<double*>(pool.scratch(worker).get(bytes));
    out[r] = draw_row(x + r * stride, n, inverse[r], u[r], blocks);
  });
}

}  // namespace pagedd
