// The products of a single row of queries in the tile unit, for the heads of one key head.
//
// Keys are the left matrix, read where they lie in their pages, so that nothing is transposed but
// the scores of the few heads there are. The unit adds the same products in the same order as with
// keys on the right, so a score is the same bit for bit.
#pragma once

#include "key_tile.h"
#include "tiles.h"

#ifdef PAGEDD_TILES

namespace pagedd {

// Tiles 0 and 1 hold scores [keys][heads], 2 and 7 keys, 3 queries; then 4 and 5 sums of values, 6
// weights, 7 values.
class SingleRow {
 public:
  // d: head_dim; inner: the same, rounded up to TILE_DEPTH; heads: TILE_ROWS at most.
  SingleRow(int64_t d, int64_t inner, int64_t heads)
      : d_(d), inner_(inner), heads_(heads),
        setup_({TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, heads, heads, heads, TILE_ROWS}) {}

  // Queries [heads][inner] → pairs [inner / 2][TILE_ROWS].
  void turn(const bf16* q, float* to) const {
    for (int64_t i = 0; i < inner_; i += TILE_DEPTH) {
      vf r[W];
      for (int h = 0; h < W; ++h) r[h] = h < heads_ ? load_pairs(q + h * inner_ + i, 2 * W) : zero();
      transpose(r);
      for (int h = 0; h < W; ++h) store(to + (i / 2 + h) * TILE_ROWS, r[h]);
    }
  }

  // Scores [heads][TILE] of the tile's keys; columns without a key hold anything. `copies` has room
  // for the tile's keys, [TILE][inner], where they cannot be taken as they lie.
  void score(const KeyRows<bf16>& keys, Ahead<bf16>& ahead, const float* queries, bf16* copies,
             float* scores) const {
    alignas(64) float turned[TILE][TILE_ROWS];
    const int begin = keys.lo / W, end = static_cast<int>(ceil_div(keys.hi, W));
    ahead.phase(TILE / 4, ceil_div(end - begin, 2) * inner_ / TILE_DEPTH);
    for (int block = begin; block < end; block += 2) {
      const int other = std::min(block + 1, end - 1);
      products(whole(keys, block * W, copies), whole(keys, other * W, copies), queries, ahead,
               turned[block * W], turned[other * W]);
    }
    ahead.phase(TILE / 3, ceil_div(heads_, 4));
    for (int64_t h = 0; h < heads_; h += 4) {
      ahead.step();
      for (int block = begin; block < end; ++block) {
        vf columns[4];
        four_columns(turned[block * W] + h, TILE_ROWS, columns);
        for (int64_t i = 0; i < std::min<int64_t>(4, heads_ - h); ++i) {
          store(scores + (h + i) * TILE + block * W, columns[i]);
        }
      }
    }
  }

  // values [heads][columns] += weights [heads][TILE] · pairs [TILE / 2][columns], for whole steps of
  // TILE_DEPTH keys.
  void weigh(const bf16* weights, const float* pairs, Range keys, Ahead<bf16>& ahead,
             float* values, int64_t columns) const {
    ahead.phase(TILE, columns / (2 * W) * (keys.hi - keys.lo) / TILE_DEPTH);
    for (int64_t i = 0; i < columns; i += 2 * W) {
      const int64_t row = 4 * columns;
      _tile_loadd(4, values + i, row);
      _tile_loadd(5, values + i + W, row);
      for (int64_t j = keys.lo; j < keys.hi; j += TILE_DEPTH) {
        ahead.step();
        _tile_loadd(6, weights + j, 2 * TILE);
        _tile_loadd(7, pairs + j / 2 * columns + i, row);
        _tile_dpbf16ps(4, 6, 7);
        _tile_loadd(7, pairs + j / 2 * columns + i + W, row);
        _tile_dpbf16ps(5, 6, 7);
      }
      _tile_stored(4, values + i, row);
      _tile_stored(5, values + i + W, row);
    }
  }

 private:
  // W keys from `first` on, in rows of `inner` numbers: as they lie in their page, if all are there.
  Matrix<const bf16> whole(const KeyRows<bf16>& keys, int first, bf16* copies) const {
    const bool all = keys.key[first] != nullptr && keys.key[first + W - 1] != nullptr;
    if (all && keys.page_size % W == 0 && d_ == inner_) return {keys.key[first], d_};
    for (int j = first; j < first + W; ++j) {
      for (int64_t i = 0; i < inner_; i += 2 * W) {
        const bf16* key = keys.key[j];
        const vf part = key ? load_pairs(key + i, static_cast<int>(d_ - i)) : zero();
        store(reinterpret_cast<float*>(copies + j * inner_ + i), part);
      }
    }
    return {copies + first * inner_, inner_};
  }

  // Two blocks of keys at once, so that one need not wait for the other's sums.
  void products(Matrix<const bf16> a, Matrix<const bf16> b, const float* queries,
                Ahead<bf16>& ahead, float* to_a, float* to_b) const {
    const int64_t a_row = 2 * a.stride, b_row = 2 * b.stride, row = 4 * TILE_ROWS;  // bytes
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t i = 0; i < inner_; i += TILE_DEPTH) {
      ahead.step();
      _tile_loadd(3, queries + i / 2 * TILE_ROWS, row);
      _tile_loadd(2, a.first + i, a_row);
      _tile_dpbf16ps(0, 2, 3);
      _tile_loadd(7, b.first + i, b_row);
      _tile_dpbf16ps(1, 7, 3);
    }
    _tile_stored(0, to_a, row);
    _tile_stored(1, to_b, row);
  }

  const int64_t d_, inner_, heads_;
  const TileSetup setup_;
};

}  // namespace pagedd

#endif
