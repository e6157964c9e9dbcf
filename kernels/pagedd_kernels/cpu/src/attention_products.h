// The two matrix products of attention over a tile of keys: scores, and values by their weights.
//
// Where the processor multiplies pairs of bfloat16, weights are rounded to bfloat16 too; the tile
// unit takes rows in multiples of TILE_ROWS, so there are that many.
#pragma once

#include <optional>

#include "key_tile.h"
#include "tiles.h"

namespace pagedd {

struct Range {
  int lo, hi;  // keys of a tile
};

// Buffers of one unit of attention. `heads` counts rows of queries, one for each row and head.
template <class A, class Weight>
struct ProductBuffers {
  A* q;             // [heads][inner]
  float* keys;      // [inner / PER_STEP][TILE]
  float* tile;      // values of the tile's keys: [TILE][padded], or [TILE / 2][padded] pairs
  float* scores;    // [heads][TILE]
  Weight* weights;  // [heads][TILE]
  float* values;    // [heads][padded], sums of this part
};

// Products in float32, values widened.
template <class T>
class AttentionProducts {
 public:
  using P = typename KeyPanel<T>::P;
  using Buffers = ProductBuffers<typename P::A, float>;
  static constexpr int64_t ROWS = 1;  // rows come in multiples of this

  AttentionProducts(int64_t d, int64_t inner, int64_t padded, int64_t heads)
      : d_(d), inner_(inner), padded_(padded), in_place_(heads <= WIDE_ROWS && d == padded) {}

  void gather(const KeyRows<T>& keys, const KeyRows<T>& next, const Buffers& b) const {
    gather_keys(keys, next, d_, b.keys);
    if (!in_place_) gather_values(keys, next, d_, padded_, b.tile);
  }

  // Products of rows [h, h + rows) with the keys of the range; other columns hold anything.
  void score(int64_t h, int64_t rows, Range range, const Buffers& b) const {
    const int begin = range.lo / PANEL * PANEL;
    const Spaced<typename P::B> keys{reinterpret_cast<const typename P::B*>(b.keys + begin),
                                     TILE * P::PER_STEP};
    row_blocks(rows, MAX_ROWS, [&](int64_t first, int count) {
      multiply<P>(count, b.q + (h + first) * inner_, inner_, keys, ceil_div(d_, P::PER_STEP),
                  b.scores + (h + first) * TILE + begin, TILE, round_up(range.hi - begin, PANEL),
                  true);
    });
  }

  // Adds the values of the range's keys to rows [h, h + rows), by their weights. Few rows read the
  // values where they lie; many rows share a copy in float32.
  void weigh(int64_t h, int64_t rows, Range range, const KeyRows<T>& keys, const KeyRows<T>& next,
             const Buffers& b) const {
    if (in_place_) {
      add(h, rows, range, Listed<T>{keys.key + range.lo, next.key + range.lo, keys.value_offset},
          b);
    } else {
      add(h, rows, range, Spaced<float>{b.tile + range.lo * padded_, padded_}, b);
    }
  }

 private:
  template <class Source>
  void add(int64_t h, int64_t rows, Range range, const Source& values, const Buffers& b) const {
    using B = std::remove_const_t<std::remove_pointer_t<decltype(values.row(0))>>;
    row_blocks(rows, MAX_ROWS, [&](int64_t first, int count) {
      multiply<Widening<B>>(count, b.weights + (h + first) * TILE + range.lo, TILE, values,
                            range.hi - range.lo, b.values + (h + first) * padded_, padded_,
                            padded_, false);
    });
  }

  const int64_t d_, inner_, padded_;
  const bool in_place_;
};

#ifdef PAGEDD_DOT_BF16
// Products of pairs of bfloat16. A key outside a row's range has the weight 0, which adds nothing.
template <>
class AttentionProducts<bf16> {
 public:
  using P = DotPairs;
  using Buffers = ProductBuffers<bf16, bf16>;
#ifdef PAGEDD_TILES
  static constexpr int64_t ROWS = TILE_ROWS;
#else
  static constexpr int64_t ROWS = 1;
#endif

  AttentionProducts(int64_t d, int64_t inner, int64_t padded, int64_t)
      : d_(d), inner_(inner), padded_(padded) {
#ifdef PAGEDD_TILES
    if (tiles_allowed()) unit_.emplace(2 * TILE_ROWS);
#endif
  }

  void gather(const KeyRows<bf16>& keys, const KeyRows<bf16>& next, const Buffers& b) const {
    gather_keys(keys, next, d_, b.keys);
    gather_value_pairs(keys, next, d_, padded_, b.tile);
  }

  void score(int64_t h, int64_t rows, Range range, const Buffers& b) const {
    const int begin = range.lo / PANEL * PANEL;
    const int64_t columns = round_up(range.hi - begin, PANEL);
    product(rows, {b.q + h * inner_, inner_}, {b.keys + begin, TILE}, inner_ / 2,
            {b.scores + h * TILE + begin, TILE}, columns, true);
  }

  void weigh(int64_t h, int64_t rows, Range, const KeyRows<bf16>&, const KeyRows<bf16>&,
             const Buffers& b) const {
    std::fill(b.weights + (h + rows) * TILE, b.weights + (h + round_up(rows, ROWS)) * TILE, bf16{});
    product(rows, {b.weights + h * TILE, TILE}, {b.tile, padded_}, TILE / 2,
            {b.values + h * padded_, padded_}, padded_, false);
  }

 private:
  void product(int64_t rows, Matrix<const bf16> a, Matrix<const float> b, int64_t pairs,
               Matrix<float> c, int64_t columns, bool fresh) const {
#ifdef PAGEDD_TILES
    if (unit_) {
      return multiply_tiles(*unit_, round_up(rows, ROWS), a, b, pairs, c, columns, fresh);
    }
#endif
    const Spaced<bf16> source{reinterpret_cast<const bf16*>(b.first), 2 * b.stride};
    row_blocks(rows, MAX_ROWS, [&](int64_t first, int count) {
      multiply<DotPairs>(count, a.first + first * a.stride, a.stride, source, pairs,
                         c.first + first * c.stride, c.stride, columns, fresh);
    });
  }

  const int64_t d_, inner_, padded_;
#ifdef PAGEDD_TILES
  std::optional<TileUnit> unit_;
#endif
};
#endif

}  // namespace pagedd
