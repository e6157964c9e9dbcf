// Linear layers: weights packed once into panels of 2W output columns, then y = x W^T + bias.
//
// A panel holds all of the inner dimension for its columns, in the order in which the register
// tile reads it. One row streams each panel once from memory; many rows keep it in cache.
#pragma once

#include <cstring>

#include "gemm.h"
#include "pool.h"

namespace pagedd {

constexpr int64_t STEPS_PER_BLOCK = 2048;  // of the inner dimension: a panel's block fits in L2

struct Linear {
  int32_t dtype;      // of weights and input
  int32_t out_dtype;  // dtype, or F32
  int64_t n, k;       // outputs, inputs
  const void* panels;
  const float* bias;  // round_up(n, PANEL) numbers, or null
};

template <class T>
inline int64_t padded_inputs(int64_t k) {
  return round_up(k, Product<T>::PER_STEP);
}

// Bytes that pack() fills: the panels alone.
inline int64_t packed_bytes(int32_t dtype, int64_t n, int64_t k) {
  int64_t bytes = 0;
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    bytes = round_up(n, PANEL) * padded_inputs<T>(k) * static_cast<int64_t>(sizeof(T));
  });
  return bytes;
}

// weight [n][k] with row stride ldw → panels; what lies outside the matrix is zero.
template <class T>
void pack(Pool& pool, const T* weight, int64_t ldw, int64_t n, int64_t k, T* panels) {
  constexpr int STEP = Product<T>::PER_STEP;
  const int64_t steps = ceil_div(k, STEP);
  pool.run(ceil_div(n, PANEL), [=](int64_t p, int) {
    T* to = panels + p * steps * STEP * PANEL;
    for (int64_t s = 0; s < steps; ++s) {
      for (int64_t c = p * PANEL; c < (p + 1) * PANEL; ++c) {
        for (int64_t i = s * STEP; i < (s + 1) * STEP; ++i) {
          *to++ = c < n && i < k ? weight[c * ldw + i] : T{};
        }
      }
    }
  });
}

// The input as the product wants it: itself, or a copy in common scratch (widened to float32, or
// with a last zero where the inner dimension is odd).
template <class T>
const typename Product<T>::A* prepared(Pool& pool, const T* x, int64_t& ldx, int64_t rows,
                                       int64_t k) {
  using A = typename Product<T>::A;
  constexpr bool same = std::is_same_v<A, T>;
  const int64_t padded = padded_inputs<T>(k);
  if constexpr (same) {
    if (padded == k) return x;
  }
  A* copy = reinterpret_cast<A*>(pool.common().get(static_cast<size_t>(rows * padded) * sizeof(A)));
  const int64_t from = ldx;
  pool.run(ceil_div(rows, 8), [=](int64_t piece, int) {
    for (int64_t r = 8 * piece; r < std::min(rows, 8 * piece + 8); ++r) {
      A* to = copy + r * padded;
      if constexpr (same) {
        std::memcpy(to, x + r * from, static_cast<size_t>(k) * sizeof(A));
        to[k] = A{};
      } else {
        for (int64_t i = 0; i < k; i += W) {
          store_up_to(to + i, load_up_to(x + r * from + i, k - i), k - i);
        }
      }
    }
  });
  ldx = padded;
  return copy;
}

// Sums of a block of rows → output: bias, rounding, the columns that exist.
template <class Out>
inline void finish(const float* sums, const float* bias, Out* out, int64_t ldo, int rows,
                   int64_t columns) {
  for (int v = 0; v < 2; ++v) {
    const int64_t left = columns - v * W;
    if (left <= 0) return;
    const vf b = bias ? load(bias + v * W) : zero();
    for (int r = 0; r < rows; ++r) {
      store_up_to(out + r * ldo + v * W, load(sums + r * PANEL + v * W) + b, left);
    }
  }
}

// Rows [begin, end) times one panel.
template <class P, class Out>
void panel_rows(const Linear& w, int64_t panel, const typename P::A* x, int64_t ldx, int64_t begin,
                int64_t end, Out* out, float* sums) {
  const int64_t steps = ceil_div(w.k, P::PER_STEP);
  const auto* b = static_cast<const typename P::B*>(w.panels) + panel * steps * P::PER_STEP * PANEL;
  const float* bias = w.bias ? w.bias + panel * PANEL : nullptr;
  for (int64_t s = 0; s < steps; s += STEPS_PER_BLOCK) {
    const int64_t count = std::min(STEPS_PER_BLOCK, steps - s);
    row_blocks(end - begin, MAX_ROWS, [&](int64_t first, int rows) {
      float* c = sums + first * PANEL;
      const Streamed<typename P::B> from(b + s * P::PER_STEP * PANEL, P::PER_STEP * PANEL);
      narrow_tile<P, Streamed<typename P::B>>(rows)(
          x + (begin + first) * ldx + s * P::PER_STEP, ldx, from, count, c, PANEL, s == 0);
      if (s + count == steps) {
        finish(c, bias, out + (begin + first) * w.n + panel * PANEL, w.n, rows,
               w.n - panel * PANEL);
      }
    });
  }
}

// x [rows][k] with row stride ldx → out [rows][n].
template <class T, class Out>
void linear(Pool& pool, const Linear& w, const T* x, int64_t ldx, Out* out, int64_t rows) {
  using P = Product<T>;
  const typename P::A* input = prepared(pool, x, ldx, rows, w.k);
  // chunks of rows that stay in L2 while the panels pass by
  const int64_t fit = (384 << 10) / (w.k * static_cast<int64_t>(sizeof(*input)));
  const int64_t chunks = ceil_div(rows, std::max<int64_t>(fit, 8 * MAX_ROWS));
  const int64_t panels = ceil_div(w.n, PANEL);
  const int64_t parts = std::min<int64_t>(panels, 16 * pool.threads());
  pool.run(chunks * parts, [&](int64_t piece, int worker) {
    const int64_t chunk = piece / parts, part = piece % parts;
    const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
    auto* sums = reinterpret_cast<float*>(
        pool.scratch(worker).get(static_cast<size_t>((end - begin) * PANEL) * sizeof(float)));
    for (int64_t p = panels * part / parts; p < panels * (part + 1) / parts; ++p) {
      panel_rows<P>(w, p, input, ldx, begin, end, out, sums);
    }
  });
}

inline void linear(Pool& pool, const Linear& w, const void* x, int64_t ldx, void* out,
                   int64_t rows) {
  if (rows <= 0) return;
  with_type(w.dtype, [&](auto t) {
    using T = decltype(t);
    const auto* input = static_cast<const T*>(x);
    if (w.out_dtype == w.dtype) {
      linear(pool, w, input, ldx, static_cast<T*>(out), rows);
    } else {
      linear(pool, w, input, ldx, static_cast<float*>(out), rows);
    }
  });
}

}  // namespace pagedd
