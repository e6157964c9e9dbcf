// A tile of TILE keys and values, gathered from pages into the forms that products read.
//
// Pages lie anywhere, so the processor cannot foresee what is read next: while a tile is worked on,
// the lines of the next one are asked for, a few at a time. And of the one after it, as soon as it
// is found, the first lines of each page: addresses are translated, processors begin to read on.
#pragma once

#include "cache.h"
#include "gemm.h"

namespace pagedd {

constexpr int TILE = 64;        // keys, aligned at position 0
constexpr int64_t SPLIT = 512;  // keys whose softmax is formed alone; then such parts are merged

struct Range {
  int lo, hi;  // keys of a tile
};

// Where the keys of a tile lie: keys outside [lo, hi) are null and never read.
template <class T>
struct KeyRows {
  const T* key[TILE] = {};
  int64_t value_offset = 0;  // from a key to its value
  int64_t page_size = 0;
  int lo = 0, hi = 0;

  void find(const Cache& cache, int64_t layer, int64_t head, const int32_t* pages, int64_t start,
            int first, int end) {
    const int64_t d = cache.head_dim;
    lo = first;
    hi = end;
    page_size = cache.page_size;
    value_offset = cache.at(0, layer, 1, head) - cache.at(0, layer, 0, head);
    for (int j = 0; j < lo; ++j) key[j] = nullptr;
    for (int j = hi; j < TILE; ++j) key[j] = nullptr;
    int64_t index = (start + lo) / cache.page_size, offset = (start + lo) % cache.page_size;
    for (int j = lo; j < hi; ++index, offset = 0) {
      const T* row = static_cast<const T*>(cache.data) + cache.at(pages[index], layer, 0, head);
      const int until = static_cast<int>(std::min<int64_t>(hi, j + page_size - offset));
      row += offset * d;
      announce(row, (until - j) * d);
      for (; j < until; ++j, row += d) key[j] = row;
    }
  }

 private:
  // Asks for eight lines of keys that lie together, and of their values: the first ones of every
  // 4,096 bytes, as far as processors read on by themselves. (Inlined by force, for GCC drops calls
  // that only prefetch.)
  [[gnu::always_inline]] void announce(const T* row, int64_t numbers) const {
    constexpr int64_t LINE = 64 / sizeof(T), FAR = 4096 / sizeof(T);
    const int64_t lead = std::max<int64_t>(1, 8 / ceil_div(numbers, FAR)) * LINE;
    for (int64_t i = 0; i < numbers; i += FAR) {
      for (int64_t j = i; j < std::min(i + lead, numbers); j += LINE) {
        __builtin_prefetch(row + j, 0, 2);
        __builtin_prefetch(row + value_offset + j, 0, 2);
      }
    }
  }
};

// The next tile, asked for key by key at an even pace in all phases of the work on this one: memory
// then works as long as the processor does, while a burst of requests would make it wait. Keys of
// both halves take turns: as the values lie elsewhere, processors read on in four places at once.
template <class T>
class Ahead {
 public:
  Ahead(const KeyRows<T>& next, int64_t d) : next_(next), d_(d) {}

  // A phase of so many steps, at whose end `keys` of the TILE will have been asked for.
  void phase(int keys, int64_t steps) {
    const int64_t open = std::max<int64_t>(0, (int64_t{keys} << 16) - due_);
    pace_ = ceil_div(open, std::max<int64_t>(1, steps));  // rounded down, the last key is forgotten
  }

  [[gnu::always_inline]] void step() {
    constexpr int64_t LINE = 64 / sizeof(T);
    due_ += pace_;
    for (const int end = std::min(static_cast<int>(due_ >> 16), TILE); at_ < end; ++at_) {
      const T* key = next_.key[at_ % 2 * (TILE / 2) + at_ / 2];
      if (key == nullptr) continue;
      const T* value = key + next_.value_offset;
      for (int64_t i = 0; i < d_; i += LINE) {
        __builtin_prefetch(key + i, 0, 2);
        __builtin_prefetch(value + i, 0, 2);
      }
    }
  }

 private:
  const KeyRows<T>& next_;
  const int64_t d_;
  int at_ = 0;                  // how many keys were asked for
  int64_t due_ = 0, pace_ = 0;  // keys, in parts of 65536
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
void gather_keys(const KeyRows<T>& rows, Ahead<T>& ahead, int64_t d, float* to) {
  ahead.phase(TILE / 3, TILE / W * ceil_div(d, KeyPanel<T>::PER_VECTOR));
  for (int j = 0; j < TILE; j += W) {
    if (j + W <= rows.lo || j >= rows.hi) continue;
    for (int64_t i = 0; i < d; i += KeyPanel<T>::PER_VECTOR) {
      ahead.step();
      vf r[W];
      for (int lane = 0; lane < W; ++lane) {
        const T* key = rows.key[j + lane];
        r[lane] = key == nullptr ? zero() : KeyPanel<T>::read(key + i, d - i);
      }
      transpose(r);
      float* panel = to + i / KeyPanel<T>::P::PER_STEP * TILE + j;
      for (int lane = 0; lane < W; ++lane) store(panel + lane * TILE, r[lane]);
    }
  }
}

#ifdef PAGEDD_DOT_BF16
// to: [TILE / 2][padded] pairs of two keys' values, padded = round_up(d, PANEL), panels in the order
// of pair_up; where there is no key, and past d, zeros. Pairs outside the range stay as they are.
inline void gather_value_pairs(const KeyRows<bf16>& rows, Ahead<bf16>& ahead, int64_t d,
                               int64_t padded, Range pairs, float* to) {
  ahead.phase(TILE * 5 / 6, padded / PANEL * (pairs.hi - pairs.lo));
  for (int64_t i = 0; i < padded; i += PANEL) {
    const int numbers = static_cast<int>(std::min<int64_t>(d - i, PANEL));
    const auto read = [&](const bf16* key) {
      return key ? load_pairs(key + rows.value_offset + i, numbers) : zero();
    };
    for (int j = pairs.lo; j < pairs.hi; ++j) {
      ahead.step();
      pair_up(read(rows.key[2 * j]), read(rows.key[2 * j + 1]), to + j * padded + i);
    }
  }
}
#endif

// to: [TILE][padded] float32, padded = round_up(d, PANEL), columns past d zero; rows without a key
// stay as they are.
template <class T>
void gather_values(const KeyRows<T>& rows, Ahead<T>& ahead, int64_t d, int64_t padded,
                   float* to) {
  ahead.phase(TILE, rows.hi - rows.lo);
  for (int j = 0; j < TILE; ++j) {
    if (j < rows.lo || j >= rows.hi) continue;
    ahead.step();
    const T* value = rows.key[j] + rows.value_offset;
    float* row = to + j * padded;
    int64_t i = 0;
    for (; i + W <= d; i += W) store(row + i, load(value + i));
    for (; i < padded; i += W) {
      store(row + i, i < d ? load_n(value + i, static_cast<int>(d - i)) : zero());
    }
  }
}

}  // namespace pagedd
