// Attention over the paged cache, for decode and prefill rows alike.
//
// A query row and head goes through its keys in tiles of TILE, aligned at position 0, with the
// online softmax (Milakov & Gimelshein 2018); every SPLIT keys form a part of their own, and parts
// are merged in order. Rows only share the gathered tiles, so a row's result is the same bit for
// bit in any batch, chunk and number of threads. No key outside a row's range enters its sums.
#pragma once

#include "attention_products.h"
#include "attention_softmax.h"

namespace pagedd {

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
    // many rows share a gathered tile; their sums, 48 KB, need not stay in L1
    const int64_t most = std::max<int64_t>(1, 12288 / padded_);
    block_rows_ = std::max<int64_t>(1, most / group_);
  }

  int64_t padded() const { return padded_; }
  int64_t group() const { return group_; }
  int64_t block_rows() const { return block_rows_; }
  int64_t results(const Unit& u) const { return u.kv_heads * u.rows * group_; }

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
      const Buffers all = compute(*u, tiles, scratch);
      const int64_t heads = u->rows * group_;
      for (int64_t i = 0; i < u->kv_heads; ++i) {
        const Buffers b = of_head(all, heads, i);
        const int64_t at = u->partial + i * heads;
        if (u->partial >= 0) {
          std::copy(b.states, b.states + heads, partial_states + at);
          std::copy(b.total, b.total + heads * padded_, partial_values + at * padded_);
        } else {
          for (int64_t h = 0; h < heads; ++h) {
            write(*u, i * heads + h, b.states[h], b.total + h * padded_);
          }
        }
      }
    }
  }

  // The row of a unit's result.
  int64_t row_of(const Unit& u, int64_t h) const { return h % (u.rows * group_) / group_; }

  // The output of one row and head: values / sum.
  void write(const Unit& u, int64_t h, const State& state, const float* values) const {
    const int64_t row = batch_.cu_seqlens[u.seq] + u.row + row_of(u, h);
    const int64_t head = (u.kv_head + h / (u.rows * group_)) * group_ + h % group_;
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

  // The tiles of some units, one after another: this one, and two ahead that are found already.
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
    void advance() { now_ = (now_ + 1) % 3; }

   private:
    void find(KeyRows<T>& rows) {
      if (unit_ == last_) {
        rows = {};
        return;
      }
      attention_.find(*unit_, unit_->kv_head + head_, start_, rows);
      if (++head_ < unit_->kv_heads) return;
      head_ = 0;
      start_ += TILE;
      if (start_ >= attention_.last_key(*unit_)) {
        if (++unit_ < last_) start_ = attention_.first_tile(*unit_);
      }
    }

    const Attention& attention_;
    const Unit *unit_, *last_;
    int64_t start_;
    int head_ = 0;  // of the unit's key heads, which take turns at each stretch of keys
    KeyRows<T> tiles_[3];
    int now_ = 0;
  };

  Buffers compute(const Unit& u, Lookout& tiles, Scratch& scratch) const {
    const int64_t heads = u.rows * group_;
    const Buffers all = buffers(scratch, heads, u.kv_heads);
    const auto of = [&](int64_t i) { return of_head(all, heads, i); };
    const Products products(d_, inner_, padded_, u.rows, group_);
    for (int i = 0; i < u.kv_heads; ++i) {
      gather_queries(u, u.kv_head + i, of(i).q);
      products.begin(of(i));
    }
    int64_t start = first_tile(u);
    for (int64_t part = u.part_begin; part < u.part_end; ++part) {
      for (int i = 0; i < u.kv_heads; ++i) clear(heads, of(i));
      const int64_t end = std::min((part + 1) * SPLIT, last_key(u));
      for (; start < end; start += TILE) {
        for (int i = 0; i < u.kv_heads; ++i, tiles.advance()) {
          tiles.look();
          run_tile(u, start, tiles, products, of(i));
        }
      }
      for (int i = 0; i < u.kv_heads; ++i) end_part(u, part, of(i));
    }
    return all;
  }

  // Rows of a buffer for so many results: products go on past the last one.
  static int64_t rows_for(int64_t heads) { return round_up(heads + 2 * Products::ROWS, 16); }

  // Of one key head; what lasts beyond a tile is its own.
  Buffers of_head(const Buffers& all, int64_t heads, int64_t i) const {
    const int64_t rows = i * rows_for(heads);
    Buffers b = all;
    b.q += rows * inner_;
    b.turned += i * inner_ * 8;
    b.values += rows * padded_;
    b.total += rows * padded_;
    b.sums += rows * W;
    b.maximum += rows;
    b.states += rows;
    return b;
  }

  Buffers buffers(Scratch& scratch, int64_t heads, int64_t kv_heads) const {
    const int64_t rows = rows_for(heads), all = rows * kv_heads;
    const int64_t sizes[] = {inner_ * all, inner_ * 8 * kv_heads, inner_ * TILE, TILE * padded_,
                             rows * TILE,  rows * TILE,           all * padded_, all * padded_,
                             all * W,      all,                   2 * all};
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

  void gather_queries(const Unit& u, int64_t kv_head, A* to) const {
    for (int64_t h = 0; h < u.rows * group_; ++h, to += inner_) {
      const int64_t row = batch_.cu_seqlens[u.seq] + u.row + h / group_;
      const T* q = static_cast<const T*>(call_.q) + row * call_.q_stride +
                   (kv_head * group_ + h % group_) * d_;
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
  void find(const Unit& u, int64_t kv_head, int64_t start, KeyRows<T>& rows) const {
    const int32_t* pages = batch_.page_table + u.seq * batch_.table_stride;
    rows.find(cache_, call_.layer, kv_head, pages, start, seen(u, 0, start).lo,
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
    Ahead<T> ahead(tiles.next(), d_);
    const int64_t h = begin * group_, rows = (end - begin) * group_;
    products.score(h, rows, tiles.tile(), ahead, b);
    ahead.phase(TILE / 2, rows);
    for (int64_t i = h; i < h + rows; ++i) {
      ahead.step();
      soften(Softmax<Weight>{b.scores + i * TILE, b.weights + i * TILE, b.sums + i * W,
                             b.maximum + i, b.values + i * padded_, padded_},
             call_.scale, seen(u, i / group_, start));
    }
    products.weigh(h, rows, tiles.tile(), tiles.next(), ahead, b);
  }

  const AttentionCall& call_;
  const Cache& cache_;
  const Batch& batch_;
  int64_t d_, group_, padded_, inner_, block_rows_;
};

}  // namespace pagedd
