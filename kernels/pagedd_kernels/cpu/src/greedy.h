// The number of the largest logit of each row, without a logit written down: of a step of many rows
// they would be more bytes than the weights.
//
// Of each panel of the output only the largest of its sums is kept; the panel that has the row's
// largest one is then multiplied once more, which gives the same bits.
#pragma once

#include <vector>

#include "linear.h"
#include "sample.h"

namespace pagedd {

// A panel's logits; -inf where there is no column.
inline void panel_logits(const Linear& w, int64_t panel, const float* sums, vf& low, vf& high) {
  const int64_t column = panel * PANEL, left = w.n - column;
  low = load(sums) + bias_at(w, column);
  high = load(sums + W) + bias_at(w, column + W);
  if (left >= PANEL) return;
  const vf none = set1(-std::numeric_limits<float>::infinity());
  low = keep(low, none, 0, static_cast<int>(std::min<int64_t>(left, W)));
  high = keep(high, none, 0, static_cast<int>(std::max<int64_t>(left - W, 0)));
}

// An ending: peaks [rows][panels], NaN where a panel has one, or infinities of both signs.
struct Peaks {
  static constexpr int64_t TOGETHER = 1;
  const Linear& w;
  float* const peaks;
  const int64_t panels;

  int64_t panel_of(int64_t turn) const { return turn; }

  void operator()(int64_t panel, int64_t row, int rows, const float* sums, int64_t) const {
    float* to = peaks + row * panels + panel;
    for (int r = 0; r < rows; ++r, sums += PANEL, to += panels) {
      vf low, high;
      panel_logits(w, panel, sums, low, high);
      const bool odd = any_nan(low + high);
      *to = odd ? std::numeric_limits<float>::quiet_NaN() : hmax(larger(low, high));
    }
  }
};

// An ending: the logits of one row and panel.
struct OnePanel {
  static constexpr int64_t TOGETHER = 1;
  const Linear& w;
  float* const logits;  // [PANEL]

  int64_t panel_of(int64_t turn) const { return turn; }

  void operator()(int64_t panel, int64_t, int, const float* sums, int64_t) const {
    vf low, high;
    panel_logits(w, panel, sums, low, high);
    store(logits, low);
    store(logits + W, high);
  }
};

// out [rows]: the least number of the largest logit; -1: a NaN, or nothing finite.
template <class T>
void greedy(Pool& pool, Scratch& memory, const Linear& w, const T* x, int64_t ldx, int64_t rows,
            int64_t* out) {
  using P = Product<T>;
  if (rows <= 0) return;
  const auto* input = prepared(pool, x, ldx, rows, w.k);
  const int64_t panels = ceil_div(w.n, PANEL);
  auto* peaks = reinterpret_cast<float*>(
      memory.get(static_cast<size_t>(rows * panels) * sizeof(float)));
  in_best_way<T>([&](auto way) {
    using Rows = typename decltype(way)::Rows;
    linear_by<P, Rows>(pool, w, input, ldx, Peaks{w, peaks, panels}, rows);
    pool.run(rows, [&](int64_t r, int worker) {
      const Largest top = largest(peaks + r * panels, panels);
      out[r] = -1;
      if (!top.valid || std::isinf(top.value)) return;
      const int64_t panel = index_of(peaks + r * panels, panels, top.value);
      float logits[PANEL];
      some_panels<P, Rows>(pool.scratch(worker), w, panel, panel + 1, input + r * ldx, ldx, 0, 1,
                           OnePanel{w, logits});
      out[r] = panel * PANEL + index_of(logits, PANEL, top.value);
    });
    std::vector<float> logits;
    for (int64_t r = 0; r < rows; ++r) {  // those with infinities or NaN
      if (out[r] >= 0) continue;
      logits.resize(static_cast<size_t>(w.n));
      linear_by<P, Rows>(pool, w, input + r * ldx, ldx, Plain<float>{w, {logits.data(), w.n}}, 1);
      argmax(pool, logits.data(), w.n, 1, w.n, out + r);
    }
  });
}

}  // namespace pagedd
