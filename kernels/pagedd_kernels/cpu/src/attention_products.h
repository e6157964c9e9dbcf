// The two matrix products of attention over a tile of keys: scores, and values by their weights.
//
// Where the processor multiplies pairs of bfloat16, weights are rounded to bfloat16 too; the tile
// unit takes rows in multiples of TILE_ROWS, so there are that many.
#pragma once

#include <optional>

#include "attention_tiles.h"

namespace pagedd {

// Buffers of one unit of attention. `heads` counts all rows of queries, one for each row and head.
template <class A, class Weight>
struct ProductBuffers {
  A* q;             // [heads][inner]
  float* turned;    // [inner / 2][TILE_ROWS] pairs of queries, for the tile unit
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

  AttentionProducts(int64_t d, int64_t inner, int64_t padded, int64_t rows, int64_t heads)
      : d_(d), inner_(inner), padded_(padded),
        in_place_(rows * heads <= WIDE_ROWS && d == padded) {}

  // PANEL sums of values in ascending order.
  static void columns(const float* values, vf& low, vf& high) {
    low = load(values);
    high = load(values + W);
  }

  // The queries are in their buffer.
  void begin(const Buffers&) const {}

  // Products of rows [h, h + rows) with the tile's keys; other columns hold anything.
  void score(int64_t h, int64_t rows, const KeyRows<T>& keys, Ahead<T>& ahead,
             const Buffers& b) const {
    gather_keys(keys, ahead, d_, b.keys);
    const Range range{keys.lo, keys.hi};
    const int begin = range.lo / PANEL * PANEL;
    const Spaced<typename P::B> panel{reinterpret_cast<const typename P::B*>(b.keys + begin),
                                      TILE * P::PER_STEP};
    row_blocks(rows, MAX_ROWS, [&](int64_t first, int count) {
      multiply<P>(count, b.q + (h + first) * inner_, inner_, panel, ceil_div(d_, P::PER_STEP),
                  b.scores + (h + first) * TILE + begin, TILE, round_up(range.hi - begin, PANEL),
                  true);
    });
  }

  // Adds the values of the tile's keys to rows [h, h + rows), by their weights. Few rows read the
  // values where they lie; many rows share a copy in float32.
  void weigh(int64_t h, int64_t rows, const KeyRows<T>& keys, const KeyRows<T>& next,
             Ahead<T>& ahead, const Buffers& b) const {
    const Range range{keys.lo, keys.hi};
    if (in_place_) {
      add(h, rows, range, Listed<T>{keys.key + range.lo, next.key + range.lo, keys.value_offset},
          b);
    } else {
      gather_values(keys, ahead, d_, padded_, b.tile);
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

  AttentionProducts(int64_t d, int64_t inner, int64_t padded, int64_t rows, int64_t heads)
      : d_(d), inner_(inner), padded_(padded) {
#ifdef PAGEDD_TILES
    if (!tiles_allowed()) return;
    if (rows == 1 && heads <= TILE_ROWS) {
      single_.emplace(d, inner, heads);
    } else {
      unit_.emplace(2 * TILE_ROWS);
    }
#endif
  }

  static void columns(const float* values, vf& low, vf& high) { unpaired(values, low, high); }

  void begin(const Buffers& b) const {
#ifdef PAGEDD_TILES
    if (single_) single_->turn(b.q, b.turned);
#endif
  }

  void score(int64_t h, int64_t rows, const KeyRows<bf16>& keys, Ahead<bf16>& ahead,
             const Buffers& b) const {
#ifdef PAGEDD_TILES
    if (single_) {
      return single_->score(keys, ahead, b.turned, reinterpret_cast<bf16*>(b.keys), b.scores);
    }
#endif
    gather_keys(keys, ahead, d_, b.keys);
    const int64_t begin = keys.lo / PANEL * PANEL, columns = round_up(keys.hi - begin, PANEL);
    product(rows, {b.q + h * inner_, inner_}, {b.keys + begin, TILE}, inner_ / 2,
            {b.scores + h * TILE + begin, TILE}, columns, true);
  }

  void weigh(int64_t h, int64_t rows, const KeyRows<bf16>& keys, const KeyRows<bf16>&,
             Ahead<bf16>& ahead, const Buffers& b) const {
    constexpr int STEP = 32;  // keys that the tile unit takes at once
    const Range steps{keys.lo / STEP * STEP, static_cast<int>(round_up(keys.hi, STEP))};
    gather_value_pairs(keys, ahead, d_, padded_, {steps.lo / 2, steps.hi / 2}, b.tile);
#ifdef PAGEDD_TILES
    if (single_) return single_->weigh(b.weights, b.tile, steps, ahead, b.values, padded_);
#endif
    std::fill(b.weights + (h + rows) * TILE, b.weights + (h + round_up(rows, ROWS)) * TILE, bf16{});
    product(rows, {b.weights + h * TILE + steps.lo, TILE}, {b.tile + steps.lo / 2 * padded_, padded_},
            (steps.hi - steps.lo) / 2, {b.values + h * padded_, padded_}, padded_, false);
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
  std::optional<SingleRow> single_;
#endif
};
#endif

}  // namespace pagedd
