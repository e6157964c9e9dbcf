// Linear layers: weights packed once into panels of 2W output columns, then y = x W^T + bias.
//
// A panel holds all of the inner dimension for its columns, in the order in which the register
// tile reads it. One row streams each panel once from memory; many rows keep it in cache.
#pragma once

#include <cstring>

#include "parts.h"

namespace pagedd {

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
  const int64_t steps = padded_inputs<T>(k) / STEP;
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
// with zeros behind the inner dimension).
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
        std::fill(to + k, to + padded, A{});
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

// How one worker goes through rows: as the tile unit takes them, or the register tile.
template <class P>
class RowsByPanel {
 public:
  using A = typename P::A;
  using B = typename P::B;
  static int64_t sums(int64_t rows) { return rows * PANEL; }

  explicit RowsByPanel(int64_t rows) : rows_(rows) {}

  // c (+)= x[rows][steps] · b; then done(first row, rows, c) for each block of rows. May get the
  // next part ready on the way.
  // Parts as long as a panel where they are read from memory as they are; unpacked ones stay in L1
  // for few rows, or in L2.
  static int64_t depth(bool packed, int64_t rows) { return packed && rows <= 32 ? 256 : 4096; }

  template <class F>
  void multiply(const A* x, int64_t ldx, const B* b, int64_t steps, float* c, bool fresh,
                Preparation<B>&, F&& done) const {
    row_blocks(rows_, MAX_ROWS, [&](int64_t first, int rows) {
      const Streamed<B> from(b, P::PER_STEP * PANEL);
      float* sums = c + first * PANEL;
      narrow_tile<P, Streamed<B>>(rows)(x + first * ldx, ldx, from, steps, sums, PANEL, fresh);
      done(first, rows, sums);
    });
  }

 private:
  const int64_t rows_;
};

#ifdef PAGEDD_TILES
class RowsByTiles {
 public:
  static int64_t sums(int64_t rows) { return (rows + 2 * TILE_ROWS) * PANEL; }

  // Blocks are of one height, so that the unit is set up once: the last may overlap the one before.
  explicit RowsByTiles(int64_t rows)
      : rows_(rows),
        blocks_(ceil_div(rows, 2 * TILE_ROWS)),
        height_(ceil_div(rows, blocks_)),
        unit_(height_) {}

  static int64_t depth(bool, int64_t) { return 320; }  // a part and rows of x stay in L1

  template <class F>
  void multiply(const bf16* x, int64_t ldx, const bf16* b, int64_t steps, float* c, bool fresh,
                Preparation<bf16>& next, F&& done) const {
    next.pace(blocks_ * ceil_div(steps, TILE_DEPTH / 2));
    for (int64_t i = 0; i < blocks_; ++i) {
      const int64_t first = std::min(i * height_, rows_ - height_);
      float* sums = c + i * height_ * PANEL;
      unit_.multiply({x + first * ldx, ldx}, {reinterpret_cast<const float*>(b), PANEL}, steps,
                     {sums, PANEL}, height_ > TILE_ROWS, fresh, [&] { next.step(); });
      done(first, static_cast<int>(height_), sums);
    }
  }

 private:
  const int64_t rows_, blocks_, height_;
  const TileUnit unit_;
};
#endif

// Rows of x times panels [first, last). `memory` has room for the sums, then for two parts.
template <class P, class Rows, class Out>
void panels_rows(const Linear& w, int64_t first, int64_t last, int64_t depth, const Rows& rows,
                 const typename P::A* x, int64_t ldx, Out* out, float* sums,
                 typename P::B* buffer) {
  using B = typename P::B;
  Parts<B> parts(w, first, last, depth);
  typename P::B* const buffers[2] = {buffer, buffer + (w.form.bits ? parts.depth() * PANEL : 0)};
  Preparation<B> now(w, parts.part(), buffers[0]);
  if (w.form.bits) now.finish();
  for (int other = 1; !parts.done(); other = 1 - other) {
    const Part part = parts.part();
    const bool ends = parts.ends_panel();
    parts.advance();
    Preparation<B> next;
    if (!parts.done()) next = Preparation<B>(w, parts.part(), buffers[other]);
    const int64_t column = part.panel * PANEL;
    const auto done = [&](int64_t row, int count, const float* c) {
      if (!ends) return;
      finish(c, w.bias ? w.bias + column : nullptr, out + row * w.n + column, w.n, count,
             w.n - column);
    };
    rows.multiply(x + part.begin, ldx, now.numbers(), (part.end - part.begin) / P::PER_STEP, sums,
                  part.begin == 0, next, done);
    if (w.form.bits) next.finish();
    now = next;
  }
}

template <class P, class Rows, class Out>
void linear_by(Pool& pool, const Linear& w, const typename P::A* x, int64_t ldx, Out* out,
               int64_t rows) {
  using B = typename P::B;
  // chunks of rows that stay in L2 while the panels pass by
  const int64_t fit = (384 << 10) / (w.k * static_cast<int64_t>(sizeof(*x)));
  const int64_t chunks = ceil_div(rows, std::max<int64_t>(fit, 96));
  const int64_t panels = ceil_div(w.n, PANEL);
  const int64_t pieces = std::min<int64_t>(panels, 2 * pool.threads());
  pool.run(chunks * pieces, [&](int64_t index, int worker) {
    const int64_t chunk = index / pieces, piece = index % pieces;
    const int64_t begin = rows * chunk / chunks, count = rows * (chunk + 1) / chunks - begin;
    const int64_t depth = Rows::depth(w.form.bits != 0, count);
    const int64_t sums = round_up(Rows::sums(count), 16);
    const int64_t buffers = w.form.bits ? 2 * std::min(depth, w.k) * PANEL : 0;
    auto* memory = reinterpret_cast<float*>(pool.scratch(worker).get(
        static_cast<size_t>(sums) * sizeof(float) + static_cast<size_t>(buffers) * sizeof(B)));
    panels_rows<P>(w, panels * piece / pieces, panels * (piece + 1) / pieces, depth, Rows(count),
                   x + begin * ldx, ldx, out + begin * w.n, memory,
                   reinterpret_cast<B*>(memory + sums));
  });
}

// x [rows][k] with row stride ldx → out [rows][n].
template <class T, class Out>
void linear(Pool& pool, const Linear& w, const T* x, int64_t ldx, Out* out, int64_t rows) {
  using P = Product<T>;
  const typename P::A* input = prepared(pool, x, ldx, rows, w.k);
#ifdef PAGEDD_TILES
  if constexpr (std::is_same_v<T, bf16>) {
    if (tiles_allowed()) return linear_by<P, RowsByTiles>(pool, w, input, ldx, out, rows);
  }
#endif
  linear_by<P, RowsByPanel<P>>(pool, w, input, ldx, out, rows);
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
