// The online softmax of attention, and what is known of a batch's rows while it goes on.
#pragma once

#include <cmath>
#include <limits>

#include "key_tile.h"
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

// Rows of one sequence and some key heads, over the parts [part_begin, part_end). Its results are
// [kv_heads][rows][group]. More than one key head: only for a single row.
struct Unit {
  int32_t seq, row, rows, kv_head, kv_heads;
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

// Of one row and head: the scores of a tile, the weights to make of them, and what is known so far.
template <class Weight>
struct Softmax {
  const float* scores;  // [TILE]
  Weight* weights;      // [TILE]
  float* sums;          // [W], of the weights, by lane
  float* maximum;       // of the scores
  float* values;        // [padded], weighted sums
  int64_t padded;
};

template <class Weight>
void rescale(const Softmax<Weight>& s, float maximum) {
  const vf factor = exp2(set1(*s.maximum - maximum));
  *s.maximum = maximum;
  store(s.sums, load(s.sums) * factor);
  for (int64_t i = 0; i < s.padded; i += W) store(s.values + i, load(s.values + i) * factor);
}

// 2^x for x <= 0, as exact as Weight can tell.
template <class Weight>
vf weight_of(vf x) {
  if constexpr (sizeof(Weight) == 4) {
    return exp2(x);
  } else {
    return exp2_roughly(x);
  }
}

// Scaled scores x [TILE] → weights 2^(x - maximum), and their sums; `top`: the largest x by lane.
template <class Weight>
[[gnu::always_inline]] inline void weigh_scores(const Softmax<Weight>& s, const vf* x, vf top) {
  if (any_greater(top, set1(*s.maximum))) rescale(s, hmax(top));
  vf sum = load(s.sums);
  const vf maximum = set1(*s.maximum);
#pragma GCC unroll 8
  for (int v = 0; v < TILE / W; ++v) {
    store(s.weights + v * W, weight_of<Weight>(x[v] - maximum));
    sum = sum + load(s.weights + v * W);  // as they are stored
  }
  store(s.sums, sum);
}

// Scores of the keys in range → weights 2^(score * scale - maximum), the others 0; the sums so far
// are rescaled.
template <class Weight>
void soften(const Softmax<Weight>& s, float scale, Range range) {
  const vf none = set1(-std::numeric_limits<float>::infinity());
  vf x[TILE / W], top = none;
  if (range.lo == 0 && range.hi == TILE) {
#pragma GCC unroll 8
    for (int v = 0; v < TILE / W; ++v) {
      x[v] = load(s.scores + v * W) * set1(scale);
      top = larger(x[v], top);
    }
    return weigh_scores(s, x, top);
  }
  for (int v = 0; v < TILE / W; ++v) {
    const int lo = std::min(std::max(range.lo - v * W, 0), W);
    const int hi = std::min(std::max(range.hi - v * W, 0), W);
    x[v] = lo >= hi ? none : keep(load(s.scores + v * W) * set1(scale), none, lo, hi);
    top = larger(x[v], top);
  }
  weigh_scores(s, x, top);
}

}  // namespace pagedd
