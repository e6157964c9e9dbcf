// Linear layers: weights packed once into panels of 2W output columns, then y = x W^T + bias.
//
// A panel holds all of the inner dimension for its columns, in the order in which the register
// tile reads it. One row streams each panel once from memory; many rows keep it in cache.
#pragma once

#include <cstring>

#include "endings.h"

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

// How one worker goes through rows: as the tile unit takes them, or the register tile.
template <class P>
class RowsByPanel {
 public:
  using A = typename P::A;
  using B = typename P::B;
  static constexpr int64_t CHUNK_BYTES = 384 << 10;
  static int64_t sums(int64_t rows) { return rows * PANEL; }

  explicit RowsByPanel(int64_t rows) : rows_(rows) {}

  // c (+)= x[rows][steps] · b; then done(first row, rows, c) for each block of rows. May get the
  // next part ready on the way.
  // Parts as long as a panel where they are read from memory as they are; unpacked ones stay in L1
  // for few rows, or in L2.
  static int64_t depth(bool packed, int64_t rows) { return packed && rows <= 32 ? 256 : 4096; }

  template <class Next, class F>
  void multiply(const A* x, int64_t ldx, const B* b, int64_t steps, float* c, bool fresh, Next&,
                F&& done) const {
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
  // Processors with the unit have an L2 of 2 MB.
  static constexpr int64_t CHUNK_BYTES = 1 << 20;
  static int64_t sums(int64_t rows) { return (rows + 2 * TILE_ROWS) * PANEL; }

  // Blocks are of one height, so that the unit is set up once: the last may overlap the one before.
  explicit RowsByTiles(int64_t rows)
      : rows_(rows),
        blocks_(ceil_div(rows, 2 * TILE_ROWS)),
        height_(ceil_div(rows, blocks_)),
        unit_(height_) {}

  static int64_t depth(bool, int64_t) { return 320; }  // a part and rows of x stay in L1

  template <class Next, class F>
  void multiply(const bf16* x, int64_t ldx, const bf16* b, int64_t steps, float* c, bool fresh,
                Next& next, F&& done) const {
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

// Rows of x times the panels whose turns are [first, last); the output begins at `row`. `memory`
// has room for `sums` numbers for each panel that goes together with others, then for two parts.
template <class P, int BITS, class Rows, class Ending>
void panels_rows(const Linear& w, int64_t first, int64_t last, int64_t depth, const Rows& rows,
                 const typename P::A* x, int64_t ldx, int64_t row, const Ending& ending,
                 float* memory, int64_t sums) {
  using B = typename P::B;
  Parts<B, Ending> parts(w, first, last, depth, ending);
  B* const buffer = reinterpret_cast<B*>(memory + Ending::TOGETHER * sums);
  B* const buffers[2] = {buffer, buffer + (BITS ? parts.depth() * PANEL : 0)};
  alignas(64) float scales[2 * KINDS<B> * W];
  using Ready = Preparation<B, BITS>;
  Ready now(w, parts.part(), buffers[0], scales);
  now.finish();
  for (int other = 1; !parts.done(); other = 1 - other) {
    const Part part = parts.part();
    parts.advance();
    Ready next;
    if (!parts.done()) next = Ready(w, parts.part(), buffers[other], scales);
    const auto done = [&](int64_t begin, int count, const float* c) {
      if (part.ends_panel) ending(part.turn, row + begin, count, c, sums);
    };
    rows.multiply(x + part.begin, ldx, now.numbers(), (part.end - part.begin) / P::PER_STEP,
                  memory + part.turn % Ending::TOGETHER * sums, part.begin == 0, next, done);
    next.finish();
    now = next;
  }
}

// The same with memory of a worker, for rows [begin, begin + count) of the output.
template <class P, class Rows, class Ending>
void some_panels(Scratch& scratch, const Linear& w, int64_t first, int64_t last,
                 const typename P::A* x, int64_t ldx, int64_t begin, int64_t count,
                 const Ending& ending) {
  using B = typename P::B;
  const int64_t depth = Rows::depth(w.form.bits != 0, count);
  const int64_t sums = round_up(Rows::sums(count), 16);
  const int64_t buffers = w.form.bits ? 2 * std::min(depth, w.k) * PANEL : 0;
  char* memory = scratch.get(static_cast<size_t>(Ending::TOGETHER * sums) * sizeof(float) +
                             static_cast<size_t>(buffers) * sizeof(B));
  const auto with_bits = [&](auto bits) {
    panels_rows<P, bits()>(w, first, last, depth, Rows(count), x, ldx, begin, ending,
                           reinterpret_cast<float*>(memory), sums);
  };
  if (w.form.bits == 4) return with_bits(std::integral_constant<int, 4>{});
  if (w.form.bits == 8) return with_bits(std::integral_constant<int, 8>{});
  with_bits(std::integral_constant<int, 0>{});
}

template <class P, class Rows, class Ending>
void linear_by(Pool& pool, const Linear& w, const typename P::A* x, int64_t ldx,
               const Ending& ending, int64_t rows) {
  // chunks of rows that stay in cache while the panels pass by
  const int64_t fit = Rows::CHUNK_BYTES / (w.k * static_cast<int64_t>(sizeof(*x)));
  const int64_t chunks = ceil_div(rows, std::max<int64_t>(fit, 96));
  const int64_t units = ceil_div(w.n, PANEL * Ending::TOGETHER);
  const int64_t pieces = std::min<int64_t>(units, 2 * pool.threads());
  pool.run(chunks * pieces, [&](int64_t index, int worker) {
    const int64_t chunk = index / pieces, piece = index % pieces;
    const int64_t begin = rows * chunk / chunks, count = rows * (chunk + 1) / chunks - begin;
    // the larger pieces first, so that threads that take turns have the same to do
    const int64_t size = units / pieces, larger = units % pieces;
    const int64_t first = piece * size + std::min(piece, larger);
    const int64_t last = first + size + (piece < larger ? 1 : 0);
    some_panels<P, Rows>(pool.scratch(worker), w, Ending::TOGETHER * first,
                         Ending::TOGETHER * last, x + begin * ldx, ldx, begin, count, ending);
  });
}

template <class R>
struct Way {
  using Rows = R;
};

// Calls f with the best way to go through rows of T on this processor.
template <class T, class F>
void in_best_way(F&& f) {
#ifdef PAGEDD_TILES
  if constexpr (std::is_same_v<T, bf16>) {
    if (tiles_allowed()) return f(Way<RowsByTiles>{});
  }
#endif
  f(Way<RowsByPanel<Product<T>>>{});
}

// x [rows][k] with row stride ldx, through the layer, to where `ending` puts it.
template <class T, class Ending>
void linear_to(const Ending& ending, Pool& pool, const Linear& w, const T* x, int64_t ldx,
               int64_t rows) {
  using P = Product<T>;
  const typename P::A* input = prepared(pool, x, ldx, rows, w.k);
  in_best_way<T>([&](auto way) {
    linear_by<P, typename decltype(way)::Rows>(pool, w, input, ldx, ending, rows);
  });
}

// x [rows][k] with row stride ldx → out [rows][n].
inline void linear(Pool& pool, const Linear& w, const void* x, int64_t ldx, void* out,
                   int64_t rows) {
  if (rows <= 0) return;
  with_type(w.dtype, [&](auto t) {
    using T = decltype(t);
    const auto* input = static_cast<const T*>(x);
    if (w.out_dtype == w.dtype) {
      linear_to(Plain<T>{w, {static_cast<T*>(out), w.n}}, pool, w, input, ldx, rows);
    } else {
      linear_to(Plain<float>{w, {static_cast<float*>(out), w.n}}, pool, w, input, ldx, rows);
    }
  });
}

// Whether the columns' halves can be multiplied panel by panel.
inline bool halves_are_panels(const Linear& w) { return w.n % (2 * PANEL) == 0; }

// x → silu(left half of the columns) * right half [rows][n / 2]. `between` [rows][n] is for layers
// whose halves are not whole panels.
template <class T>
void gated_linear(Pool& pool, const Linear& w, const T* x, int64_t ldx, T* between, Output<T> out,
                  int64_t rows) {
  if (halves_are_panels(w)) return linear_to(Gated<T>{w, out}, pool, w, x, ldx, rows);
  linear(pool, w, x, ldx, between, rows);
  silu_mul(pool, between, out.first, out.stride, rows, w.n / 2);
}

}  // namespace pagedd
