// What becomes of the sums of a linear layer: bias, rounding, and where they go.
#pragma once

#include "norm.h"
#include "parts.h"

namespace pagedd {

// Where a product goes: its first number, and what lies between its rows, in numbers.
template <class Out>
struct Output {
  Out* first;
  int64_t stride;
};

inline vf bias_at(const Linear& w, int64_t column) {
  return w.bias ? load(w.bias + column) : zero();
}

// Sums plus bias: the columns that exist.
template <class Out>
struct Plain {
  static constexpr int64_t TOGETHER = 1;  // panels of sums for a panel of the output
  const Linear& w;
  const Output<Out> to;

  int64_t panel_of(int64_t turn) const { return turn; }

  void operator()(int64_t turn, int64_t row, int rows, const float* sums, int64_t) const {
    const int64_t column = turn * PANEL, left = w.n - column;
    const vf low = bias_at(w, column), high = bias_at(w, column + W);
    Out* out = to.first + row * to.stride + column;
    for (int r = 0; r < rows; ++r, sums += PANEL, out += to.stride) {
      const vf a = load(sums) + low, b = load(sums + W) + high;
      if (left >= PANEL) {
        store_two(out, a, b);
      } else {
        store_up_to(out, a, left);
        if (left > W) store_up_to(out + W, b, left - W);
      }
    }
  }
};

// silu(left half of the columns) * right half, each rounded before as silu_mul() would find it. A
// panel of the left half comes before its partner; halves are whole panels.
template <class Out>
struct Gated {
  static constexpr int64_t TOGETHER = 2;
  const Linear& w;
  const Output<Out> to;

  int64_t panel_of(int64_t turn) const { return turn / 2 + turn % 2 * (w.n / 2 / PANEL); }

  // The sums of the gate lie so far `before`.
  void operator()(int64_t turn, int64_t row, int rows, const float* sums, int64_t before) const {
    if (turn % 2 == 0) return;
    const int64_t column = turn / 2 * PANEL;
    Out* out = to.first + row * to.stride + column;
    for (int r = 0; r < rows; ++r, sums += PANEL, out += to.stride) {
      Out gate[PANEL], up[PANEL];
      rounded(sums - before, column, gate);
      rounded(sums, column + w.n / 2, up);
      store_two(out, silu_times<Out>(load(gate), load(up)),
                silu_times<Out>(load(gate + W), load(up + W)));
    }
  }

 private:
  void rounded(const float* sums, int64_t column, Out* row) const {
    store_two(row, load(sums) + bias_at(w, column), load(sums + W) + bias_at(w, column + W));
  }
};

}  // namespace pagedd
