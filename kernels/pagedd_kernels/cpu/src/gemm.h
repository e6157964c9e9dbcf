// The register tile of every matrix product: rows of A times a panel of B, float32 sums.
//
// Each element of the result is one chain of additions in ascending order of the inner dimension,
// the same for every height and width of the tile. So a row's result depends neither on the rows
// beside it nor on how rows and columns are cut into tiles.
#pragma once

#include <algorithm>
#include <utility>

#include "vec.h"

namespace pagedd {

// A is float32, B any storage type: one number of the inner dimension per step.
template <class T>
struct Widening {
  using A = float;
  using B = T;
  static constexpr int PER_STEP = 1;
  static vf broadcast(const A* a) { return set1(*a); }
  static vf load_b(const B* b) { return load(b); }
  static vf accumulate(vf a, vf b, vf c) { return fma(a, b, c); }
};

#ifdef PAGEDD_DOT_BF16
// Two numbers of the inner dimension per step. B holds pairs: for each step and column two
// neighbours of the inner dimension side by side.
struct DotPairs {
  using A = bf16;
  using B = bf16;
  static constexpr int PER_STEP = 2;
  static vf broadcast(const A* a) {
    float pair;
    __builtin_memcpy(&pair, a, 4);
    return set1(pair);
  }
  static vf load_b(const B* b) { return load(reinterpret_cast<const float*>(b)); }
  static vf accumulate(vf a, vf b, vf c) { return dot_pairs(a, b, c); }
};
template <class T>
struct ProductOf {
  using type = Widening<T>;
};
template <>
struct ProductOf<bf16> {
  using type = DotPairs;
};
#else
template <class T>
struct ProductOf {
  using type = Widening<T>;
};
#endif
// The product for weights (or keys) of type T.
template <class T>
using Product = typename ProductOf<T>::type;

constexpr int PANEL = 2 * W;  // columns of B that lie together

// Where the rows of B lie, one for each step: evenly spaced ... (foresee() is inlined by force, for
// GCC drops calls that only prefetch as calls without effect.)
template <class T>
struct Spaced {
  const T* first;
  int64_t stride;  // numbers
  Spaced shifted(int64_t numbers) const { return {first + numbers, stride}; }
  const T* row(int64_t step) const { return first + step * stride; }
  void foresee(int64_t, int64_t) const {}
};

// ... evenly spaced and streamed from memory: the lines some steps ahead are asked for ...
template <class T>
struct Streamed : Spaced<T> {
  static constexpr int64_t AHEAD = 4096;  // bytes; measured best from memory, harmless in cache
  Streamed(const T* first, int64_t stride) : Spaced<T>{first, stride} {}
  [[gnu::always_inline]] void foresee(int64_t step, int64_t bytes) const {
    const auto* line = reinterpret_cast<const char*>(this->row(step)) + AHEAD;
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(line + i, 0, 3);
  }
};

// ... or anywhere; then the same rows of another list are asked for on the way.
template <class T>
struct Listed {
  const T* const* rows;
  const T* const* next;
  int64_t offset;
  Listed shifted(int64_t numbers) const { return {rows, next, offset + numbers}; }
  const T* row(int64_t step) const { return rows[step] + offset; }
  [[gnu::always_inline]] void foresee(int64_t step, int64_t bytes) const {
    const auto* line = reinterpret_cast<const char*>(next[step] + offset);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(line + i, 0, 3);
  }
};

// c[ROWS][VECS*W] (+)= a[ROWS][steps] * b[steps][VECS*W]; lda, ldc in numbers. With `fresh` the
// sums start at zero, else at c.
template <class P, class Source, int ROWS, int VECS>
void tile(const typename P::A* a, int64_t lda, Source b, int64_t steps, float* c, int64_t ldc,
          bool fresh) {
  constexpr int64_t BYTES = VECS * W * P::PER_STEP * static_cast<int64_t>(sizeof(typename P::B));
  vf sum[ROWS][VECS];
#pragma GCC unroll 12
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) sum[r][v] = fresh ? zero() : load(c + r * ldc + v * W);
  }
  constexpr int GROUPS = (ROWS + 2) / 3;  // few pointers: three rows each by index
  const typename P::A* row[GROUPS];
#pragma GCC unroll 4
  for (int g = 0; g < GROUPS; ++g) row[g] = a + 3 * g * lda;
  for (int64_t s = 0; s < steps; ++s) {
    const typename P::B* from = b.row(s);
    vf column[VECS];
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) column[v] = P::load_b(from + v * W * P::PER_STEP);
    b.foresee(s, BYTES);
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r) {
      const vf x = P::broadcast(row[r / 3] + (r % 3) * lda);
#pragma GCC unroll 4
      for (int v = 0; v < VECS; ++v) sum[r][v] = P::accumulate(x, column[v], sum[r][v]);
    }
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; ++g) row[g] += P::PER_STEP;
  }
#pragma GCC unroll 12
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) store(c + r * ldc + v * W, sum[r][v]);
  }
}

template <class P, class Source>
using Tile = void (*)(const typename P::A*, int64_t, Source, int64_t, float*, int64_t, bool);

template <class P, class Source, int VECS, int... I>
constexpr Tile<P, Source> tile_of(int rows, std::integer_sequence<int, I...>) {
  constexpr Tile<P, Source> tiles[] = {tile<P, Source, I + 1, VECS>...};
  return tiles[rows - 1];
}
// The tile for a number of rows and one panel (up to MAX_ROWS), or two (up to WIDE_ROWS).
template <class P, class Source>
inline Tile<P, Source> narrow_tile(int rows) {
  return tile_of<P, Source, 2>(rows, std::make_integer_sequence<int, MAX_ROWS>{});
}
template <class P, class Source>
inline Tile<P, Source> wide_tile(int rows) {
  return tile_of<P, Source, 4>(rows, std::make_integer_sequence<int, WIDE_ROWS>{});
}

// Calls f(first row, rows) for blocks of at most `most` rows, as equal as can be.
template <class F>
inline void row_blocks(int64_t rows, int most, F&& f) {
  const int64_t blocks = ceil_div(rows, most);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = rows * i / blocks, end = rows * (i + 1) / blocks;
    f(begin, static_cast<int>(end - begin));
  }
}

// One block of rows (at most MAX_ROWS) times columns side by side, a multiple of PANEL. Few rows
// take two panels at once: more sums in flight hide the latency of one.
template <class P, class Source>
inline void multiply(int rows, const typename P::A* a, int64_t lda, const Source& b, int64_t steps,
                     float* c, int64_t ldc, int64_t columns, bool fresh) {
  int64_t i = 0;
  if (rows <= WIDE_ROWS) {
    for (; i + 2 * PANEL <= columns; i += 2 * PANEL) {
      const Source part = b.shifted(i * P::PER_STEP);
      wide_tile<P, Source>(rows)(a, lda, part, steps, c + i, ldc, fresh);
    }
  }
  for (; i < columns; i += PANEL) {
    const Source part = b.shifted(i * P::PER_STEP);
    narrow_tile<P, Source>(rows)(a, lda, part, steps, c + i, ldc, fresh);
  }
}

}  // namespace pagedd
