// Attention over the paged cache, for decode and prefill rows alike.
//
// A query row and head goes through its keys in tiles of TILE, aligned at position 0, with the
// online softmax (Milakov & Gimelshein 2018); every SPLIT keys form a part of their own, and parts
// are merged in order. Rows only share the gathered tiles, so a row's result is the same bit for
// bit in any batch, chunk and number of threads. No key outside a row's range enters its sums.
#pragma once

#include <cmath>
#include <limits>

#include "attention_products.h"
#include "pool.h"

namespace pagedd {

struct AttentionCall {
  const void* q;
  int64_t q_stride;  // between rows, in numbers; heads are dense
  void* out;         // [tokens][heads * head_dim]
  int64_t heads, layer;
  float scale;     // of scores, for powers of 2: includes log2(e)
  int64_t window;  // 0: none
};

// The softmax state of one row and head: maximum, sum of weights; its weighted values lie beside.
struct State {
  float maximum, sum;
};

// Rows of one sequence and one key head, over the parts [part_begin, part_end).
struct Unit {
  int32_t seq, row, rows, kv_head;
  int64_t part_begin, part_end;
  int64_t partial;  // index of its first state in the partial results; -1: writes the output
};

// Weighted values and state of the part (b) joined to those before it (a).
inline void merge(State& a, float* a_values, const State& b, const float* b_values, int64_t n) {
  const float m = a.maximum > b.maximum ? a.maximum : b.maximum;
  float powers[W];
  float differences[W] = {a.maximum - m, b.maximum - m};
  store(powers, exp2(load(differences)));
  a.sum = a.sum * powers[0] + b.sum * powers[1];
  a.maximum = m;
  for (int64_t i = 0; i < n; i += W) {
    const vf old = load(a_values + i) * set1(powers[0]);
    store(a_values + i, fma(load(b_values + i), set1(powers[1]), old));
  }
}

template <class T>
class Attention {
  using Products = AttentionProducts<T>;
  using A = typename Products::P::A;
  using Weight = std::remove_pointer_t<decltype(Products::Buffers::weights)>;

 public:
  Attention(const AttentionCall& call, const Cache& cache, const Batch& batch)
      : call_(call), cache_(cache), batch_(batch), d_(cache.head_dim),
        group_(call.heads / cache.kv_heads), padded_(round_up(d_, PANEL)),
        inner_(round_up(d_, KeyPanel<T>::PER_VECTOR)) {
    const int64_t most = std::max<int64_t>(1, 4096 / padded_);  // sums of 16 KB stay in L1
    block_rows_ = std::max<int64_t>(1, most / group_);
  }

  int64_t padded() const { return padded_; }
  int64_t group() const { return group_; }
  int64_t block_rows() const { return block_rows_; }

  int64_t position(const Unit& u, int64_t r) const {
    const int64_t rows = batch_.cu_seqlens[u.seq + 1] - batch_.cu_seqlens[u.seq];
    return batch_.seq_lens[u.seq] - rows + u.row + r;
  }
  int64_t first_key(int64_t position) const {
    return call_.window > 0 ? std::max<int64_t>(0, position - call_.window + 1) : 0;
  }

  // Computes units [first, last), one after another; split ones leave states and values
  // [unit's states][padded] behind.
  void run(const Unit* first, const Unit* last, Scratch& scratch, State* partial_states,
           float* partial_values) const {
    Lookout tiles(*this, first, last);
    for (const Unit* u = first; u < last; ++u) {
      const Buffers b = compute(*u, tiles, scratch);
      const int64_t heads = u->rows * group_;
      if (u->partial >= 0) {
        std::copy(b.states, b.states + heads, partial_states + u->partial);
        std::copy(b.total, b.total + heads * padded_, partial_values + u->partial * padded_);
      } else {
        for (int64_t h = 0; h < heads; ++h) write(*u, h, b.states[h], b.total + h * padded_);
      }
    }
  }

  // The output of one row and head: values / sum.
  void write(const Unit& u, int64_t h, const State& state, const float* values) const {
    const int64_t row = batch_.cu_seqlens[u.seq] + u.row + h / group_;
    const int64_t head = u.kv_head * group_ + h % group_;
    T* out = static_cast<T*>(call_.out) + (row * call_.heads + head) * d_;
    const vf sum = set1(state.sum);
    for (int64_t i = 0; i < d_; i += PANEL) {
      vf low, high;
      Products::columns(values + i, low, high);
      store_up_to(out + i, low / sum, d_ - i);
      if (d_ - i > W) store_up_to(out + i + W, high / sum, d_ - i - W);
    }
  }

 private:
  struct Buffers : Products::Buffers {
    float *total;    // [heads][padded], sums of the parts before
    float *sums;     // [heads][W], weights' sums by lane
    float *maximum;  // [heads]
    State* states;   // [heads]
  };

  // The tiles of some units, one after another: this one, and two ahead that are already found.
  class Lookout {
   public:
    Lookout(const Attention& attention, const Unit* first, const Unit* last)
        : attention_(attention), unit_(first), last_(last), start_(attention.first_tile(*first)) {
      find(tiles_[0]);
      find(tiles_[1]);
    }
    // To be called before the work on each tile.
    void look() { find(tiles_[(now_ + 2) % 3]); }
    const KeyRows<T>& tile() const { return tiles_[now_]; }
    const KeyRows<T>& next() const { return tiles_[(now_ + 1) % 3]; }
    const KeyRows<T>& later() const { return tiles_[(now_ + 2) % 3]; }
    void advance() { now_ = (now_ + 1) % 3; }

   private:
    void find(KeyRows<T>& rows) {
      if (unit_ == last_) {
        rows = {};
        return;
      }
      attention_.find(*unit_, start_, rows);
      start_ += TILE;
      if (start_ >= attention_.last_key(*unit_)) {
        if (++unit_ < last_) start_ = attention_.first_tile(*unit_);
      }
    }

    const Attention& attention_;
    const Unit *unit_, *last_;
    int64_t start_;
    KeyRows<T> tiles_[3];
    int now_ = 0;
  };

  Buffers compute(const Unit& u, Lookout& tiles, Scratch& scratch) const {
    const int64_t heads = u.rows * group_;
    const Buffers b = buffers(scratch, heads);
    const Products products(d_, inner_, padded_, u.rows, group_);
    gather_queries(u, b.q);
    products.begin(b);
    int64_t start = first_tile(u);
    for (int64_t part = u.part_begin; part < u.part_end; ++part) {
      clear(heads, b);
      const int64_t end = std::min((part + 1) * SPLIT, last_key(u));
      for (; start < end; start += TILE, tiles.advance()) {
        tiles.look();
        run_tile(u, start, tiles, products, b);
      }
      end_part(u, part, b);
    }
    return b;
  }

  Buffers buffers(Scratch& scratch, int64_t heads) const {
    const int64_t rows = heads + 2 * Products::ROWS;  // products go on past the last row
    const int64_t sizes[] = {inner_ * rows, inner_ * 8,     inner_ * TILE,      TILE * padded_,
                             rows * TILE,   rows * TILE,    rows * padded_,     rows * padded_,
                             rows * W,      round_up(rows, 16), 2 * round_up(rows, 16)};
    constexpr int PARTS = sizeof(sizes) / sizeof(*sizes);
    int64_t total = 0;
    for (int64_t size : sizes) total += round_up(size, 16);
    float* at = reinterpret_cast<float*>(scratch.get(static_cast<size_t>(total) * sizeof(float)));
    float* part[PARTS];
    for (int i = 0; i < PARTS; ++i) {
      part[i] = at;
      at += round_up(sizes[i], 16);
    }
    return {{reinterpret_cast<A*>(part[0]), part[1], part[2], part[3], part[4],
             reinterpret_cast<Weight*>(part[5]), part[6]},
            part[7], part[8], part[9], reinterpret_cast<State*>(part[10])};
  }

  void gather_queries(const Unit& u, A* to) const {
    for (int64_t h = 0; h < u.rows * group_; ++h, to += inner_) {
      const int64_t row = batch_.cu_seqlens[u.seq] + u.row + h / group_;
      const T* q = static_cast<const T*>(call_.q) + row * call_.q_stride +
                   (u.kv_head * group_ + h % group_) * d_;
      if constexpr (std::is_same_v<A, T>) {
        std::copy(q, q + d_, to);
        std::fill(to + d_, to + inner_, A{});
      } else {
        for (int64_t i = 0; i < inner_; i += W) {
          store(to + i, i < d_ ? load_up_to(q + i, d_ - i) : zero());
        }
      }
    }
  }

  void clear(int64_t heads, const Buffers& b) const {
    std::fill(b.values, b.values + heads * padded_, 0.0f);
    std::fill(b.sums, b.sums + heads * W, 0.0f);
    std::fill(b.maximum, b.maximum + heads, -std::numeric_limits<float>::infinity());
  }

  // Joins a part's results to those of the parts before it, for the rows that saw keys of it.
  void end_part(const Unit& u, int64_t part, const Buffers& b) const {
    for (int64_t r = 0; r < u.rows; ++r) {
      const int64_t p = position(u, r), first = first_key(p) / SPLIT;
      if (part > p / SPLIT || part < first) continue;
      const bool fresh = part == u.part_begin || part == first;
      for (int64_t h = r * group_; h < (r + 1) * group_; ++h) {
        const State state{b.maximum[h], hsum(load(b.sums + h * W))};
        float *total = b.total + h * padded_, *values = b.values + h * padded_;
        if (fresh) {
          b.states[h] = state;
          std::copy(values, values + padded_, total);
        } else {
          merge(b.states[h], total, state, values, padded_);
        }
      }
    }
  }

  int64_t first_tile(const Unit& u) const {
    return std::max(u.part_begin * SPLIT, first_key(position(u, 0)) / TILE * TILE);
  }

  // Behind the last key that the unit sees.
  int64_t last_key(const Unit& u) const {
    return std::min(u.part_end * SPLIT, position(u, u.rows - 1) + 1);
  }

  // The keys of a tile that some row of the unit sees.
  void find(const Unit& u, int64_t start, KeyRows<T>& rows) const {
    const int32_t* pages = batch_.page_table + u.seq * batch_.table_stride;
    rows.find(cache_, call_.layer, u.kv_head, pages, start, seen(u, 0, start).lo,
              seen(u, u.rows - 1, start).hi);
  }

  // The keys of a tile that a row sees.
  Range seen(const Unit& u, int64_t r, int64_t start) const {
    const int64_t p = position(u, r);
    const auto cut = [](int64_t x) {
      return static_cast<int>(std::min<int64_t>(std::max<int64_t>(x, 0), TILE));
    };
    return {cut(first_key(p) - start), cut(p + 1 - start)};
  }

  // All rows that see keys of the tile go together; a key that one of them does not see has no
  // weight in its sums.
  void run_tile(const Unit& u, int64_t start, const Lookout& tiles, const Products& products,
                const Buffers& b) const {
    const auto blind = [&](int64_t r) {
      const Range range = seen(u, r, start);
      return range.lo >= range.hi;
    };
    int64_t begin = 0, end = u.rows;
    while (begin < end && blind(begin)) ++begin;
    while (begin < end && blind(end - 1)) --end;
    if (begin == end) return;
    Ahead<T> ahead(tiles.next(), tiles.later(), d_);
    const int64_t h = begin * group_, rows = (end - begin) * group_;
    products.score(h, rows, tiles.tile(), ahead, b);
    ahead.phase(TILE / 2, rows);
    for (int64_t i = h; i < h + rows; ++i) {
      ahead.step();
      soften(i, seen(u, i / group_, start), b);
    }
    products.weigh(h, rows, tiles.tile(), tiles.next(), ahead, b);
  }

  // Scores of one row and head → weights 2^(score - maximum); the sums so far rescaled.
  void soften(int64_t h, Range range, const Buffers& b) const {
    const float* scores = b.scores + h * TILE;
    Weight* weights = b.weights + h * TILE;
    const vf none = set1(-std::numeric_limits<float>::infinity()), scale = set1(call_.scale);
    vf x[TILE / W], top = none;
    for (int v = 0; v < TILE / W; ++v) {
      const int lo = std::min(std::max(range.lo - v * W, 0), W);
      const int hi = std::min(std::max(range.hi - v * W, 0), W);
      x[v] = lo >= hi ? none : keep(load(scores + v * W) * scale, none, lo, hi);
      top = larger(x[v], top);
    }
    if (any_greater(top, set1(b.maximum[h]))) rescale(h, hmax(top), b);
    vf sum = load(b.sums + h * W);
    const vf maximum = set1(b.maximum[h]);
    for (int v = 0; v < TILE / W; ++v) {
      store(weights + v * W, exp2(x[v] - maximum));
      sum = sum + load(weights + v * W);  // as they are stored
    }
    store(b.sums + h * W, sum);
  }

  void rescale(int64_t h, float maximum, const Buffers& b) const {
    const vf factor = exp2(set1(b.maximum[h] - maximum));
    b.maximum[h] = maximum;
    store(b.sums + h * W, load(b.sums + h * W) * factor);
    float* values = b.values + h * padded_;
    for (int64_t i = 0; i < padded_; i += W) store(values + i, load(values + i) * factor);
  }

  const AttentionCall& call_;
  const Cache& cache_;
  const Batch& batch_;
  int64_t d_, group_, padded_, inner_, block_rows_;
};

}  // namespace pagedd
