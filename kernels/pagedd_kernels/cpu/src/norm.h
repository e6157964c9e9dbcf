// RMS norm, residual sum and gated SiLU: float32 inside, one row at a time.
#pragma once

#include <cmath>

#include "pool.h"
#include "vec.h"

namespace pagedd {

// Rows per piece such that a piece moves a few tens of kilobytes: few rows stay on the caller.
inline int64_t rows_per_piece(int64_t numbers_per_row) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, numbers_per_row));
}

template <class F>
inline void for_rows(Pool& pool, int64_t rows, int64_t numbers_per_row, F&& f) {
  const int64_t each = rows_per_piece(numbers_per_row);
  pool.run(ceil_div(rows, each), [&](int64_t piece, int worker) {
    for (int64_t r = piece * each; r < std::min(rows, (piece + 1) * each); ++r) f(r, worker);
  });
}

// 1 / sqrt(mean(x^2) + eps)
template <class T>
inline float inverse_rms(const T* x, int64_t n, float eps) {
  vf squares[4] = {zero(), zero(), zero(), zero()};
  for (int64_t i = 0, j = 0; i < n; i += W, j = (j + 1) & 3) {
    const vf v = load_up_to(x + i, n - i);
    squares[j] = fma(v, v, squares[j]);
  }
  const float sum = hsum((squares[0] + squares[1]) + (squares[2] + squares[3]));
  return 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
}

template <class T>
inline void scale_row(const T* x, const T* weight, float scale, int64_t n, T* out) {
  for (int64_t i = 0; i < n; i += W) {
    const vf v = load_up_to(x + i, n - i) * set1(scale);
    store_up_to(out + i, v * load_up_to(weight + i, n - i), n - i);
  }
}

// residual (null: none) += x, then out = norm(residual) * weight; rows are dense.
template <class T>
void rms_norm(Pool& pool, const T* x, T* residual, const T* weight, float eps, T* out, int64_t rows,
              int64_t n) {
  for_rows(pool, rows, n, [=](int64_t r, int) {
    const T* row = x + r * n;
    if (residual != nullptr) {
      T* sum = residual + r * n;
      for (int64_t i = 0; i < n; i += W) {
        store_up_to(sum + i, load_up_to(sum + i, n - i) + load_up_to(row + i, n - i), n - i);
      }
      row = sum;
    }
    scale_row(row, weight, inverse_rms(row, n, eps), n, out + r * n);
  });
}

// silu(gate) * up, as exact as T can tell.
template <class T>
inline vf silu_times(vf gate, vf up) {
  if constexpr (sizeof(T) == 4) {
    const vf e = exp(gate);  // cut at 88, where the quotient is 1
    return gate * (e / (set1(1.0f) + e)) * up;
  } else {
    gate = larger(set1(-87.0f), gate);  // below, it is nothing beside what a half float can tell
    const vf e = exp2_roughly(gate * set1(-LOG2_E));
    return gate * reciprocal(set1(1.0f) + e) * up;
  }
}

// gate_up [rows][2n] → out [rows][n] with row stride ldo = silu(gate) * up
template <class T>
void silu_mul(Pool& pool, const T* gate_up, T* out, int64_t ldo, int64_t rows, int64_t n) {
  for_rows(pool, rows, 4 * n, [=](int64_t r, int) {
    const T* gate = gate_up + 2 * r * n;
    for (int64_t i = 0; i < n; i += W) {
      const vf g = load_up_to(gate + i, n - i), u = load_up_to(gate + n + i, n - i);
      store_up_to(out + r * ldo + i, silu_times<T>(g, u), n - i);
    }
  });
}

}  // namespace pagedd
