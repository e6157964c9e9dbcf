// A tile of TILE keys and values, gathered from pages into the forms that products read.
//
// Pages lie anywhere, so the processor cannot foresee what is read next: while a tile is worked on,
// the lines of the next one are asked for, a few at a time. (Address 0 and what follows it, where
// there is no next key, is asked for in vain.)
#pragma once

#include "cache.h"
#include "gemm.h"

namespace pagedd {

constexpr int TILE = 64;        // keys, aligned at position 0
constexpr int64_t SPLIT = 512;  // keys whose softmax is formed alone; then such parts are merged

// Where the keys of a tile lie: keys outside [lo, hi) are null and never read.
template <class T>
struct KeyRows {
  const T* key[TILE] = {};
  int64_t value_offset = 0;  // from a key to its value
  int lo = 0, hi = 0;

  void find(const Cache& cache, int64_t layer, int64_t head, const int32_t* pages, int64_t start,
            int first, int end) {
    const int64_t d = cache.head_dim;
    lo = first;
    hi = end;
    value_offset = cache.at(0, layer, 1, head) - cache.at(0, layer, 0, head);
    for (int j = 0; j < lo; ++j) key[j] = nullptr;
    for (int j = hi; j < TILE; ++j) key[j] = nullptr;
    int64_t index = (start + lo) / cache.page_size, offset = (start + lo) % cache.page_size;
    for (int j = lo; j < hi; ++index, offset = 0) {
      const T* row = static_cast<const T*>(cache.data) + cache.at(pages[index], layer, 0, head);
      for (; offset < cache.page_size && j < hi; ++offset, ++j) key[j] = row + offset * d;
    }
  }
};

// Keys transposed to a panel [d][TILE] for the score product: the inner dimension is head_dim.
// Returns through `to` the numbers of P::B, pairs side by side where the product takes pairs.
template <class T>
struct KeyPanel {
  using P = Widening<float>;
  static constexpr int PER_VECTOR = W;  // numbers of head_dim that one transposition takes
  static vf read(const T* row, int64_t n) { return load_up_to(row, n); }
};
#ifdef PAGEDD_DOT_BF16
template <>
struct KeyPanel<bf16> {
  using P = DotPairs;
  static constexpr int PER_VECTOR = 2 * W;
  static vf read(const bf16* row, int64_t n) {
    return load_pairs(row, static_cast<int>(std::min<int64_t>(n, 2 * W)));
  }
};
#endif

// to: [round_up(d, PER_VECTOR) / PER_STEP][TILE] lanes of 32 bits; columns without a key hold
// anything.
template <class T>
void gather_keys(const KeyRows<T>& rows, const KeyRows<T>& next, int64_t d, float* to) {
  for (int j = 0; j < TILE; j += W) {
    if (j + W <= rows.lo || j >= rows.hi) continue;
    for (int64_t i = 0; i < d; i += KeyPanel<T>::PER_VECTOR) {
      vf r[W];
      for (int lane = 0; lane < W; ++lane) {
        const T* key = rows.key[j + lane];
        __builtin_prefetch(next.key[j + lane] + i, 0, 2);
        r[lane] = key == nullptr ? zero() : KeyPanel<T>::read(key + i, d - i);
      }
      transpose(r);
      float* panel = to + i / KeyPanel<T>::P::PER_STEP * TILE + j;
      for (int lane = 0; lane < W; ++lane) store(panel + lane * TILE, r[lane]);
    }
  }
}

#ifdef PAGEDD_DOT_BF16
// to: [TILE / 2][padded] pairs of two keys' values, padded = round_up(d, PANEL); where there is no
// key, and past d, zeros.
inline void gather_value_pairs(const KeyRows<bf16>& rows, const KeyRows<bf16>& next, int64_t d,
                               int64_t padded, float* to) {
  static const bf16 absent[W] = {};
  for (int j = 0; j < TILE; j += 2, to += padded) {
    const bf16* value[2];
    for (int i = 0; i < 2; ++i) {
      const bf16* key = rows.key[j + i];
      value[i] = key == nullptr ? nullptr : key + rows.value_offset;
    }
    for (int64_t i = 0; i < padded; i += W) {
      __builtin_prefetch(next.key[j] + rows.value_offset + i, 0, 2);
      __builtin_prefetch(next.key[j + 1] + rows.value_offset + i, 0, 2);
      const int n = static_cast<int>(std::min<int64_t>(W, d - i));
      store(to + i, n <= 0 ? zero()
                           : pair_up(value[0] ? value[0] + i : absent,
                                     value[1] ? value[1] + i : absent, n));
    }
  }
}
#endif

// to: [TILE][padded] float32, padded = round_up(d, PANEL), columns past d zero; rows without a key
// stay as they are.
template <class T>
void gather_values(const KeyRows<T>& rows, const KeyRows<T>& next, int64_t d, int64_t padded,
                   float* to) {
  for (int j = 0; j < TILE; ++j) {
    if (j < rows.lo || j >= rows.hi) continue;
    const T* value = rows.key[j] + rows.value_offset;
    float* row = to + j * padded;
    int64_t i = 0;
    for (; i + W <= d; i += W) {
      __builtin_prefetch(next.key[j] + rows.value_offset + i, 0, 2);
      store(row + i, load(value + i));
    }
    for (; i < padded; i += W) {
      store(row + i, i < d ? load_n(value + i, static_cast<int>(d - i)) : zero());
    }
  }
}

}  // namespace pagedd
