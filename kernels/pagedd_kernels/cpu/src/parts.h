// Parts of packed weights, one after another, each made ready while the one before is in use.
#pragma once

#include "blocks.h"

namespace pagedd {

struct Linear {
  int32_t dtype;      // of weights and input
  int32_t out_dtype;  // dtype, or F32
  int64_t n, k;       // outputs, inputs
  const void* panels;
  const float* bias;  // round_up(n, PANEL) numbers, or null
  BlockForm form;     // of quantised weights; bits 0: dense
};

template <class T>
inline int64_t padded_inputs(int64_t k) {
  return round_up(k, inner_multiple<T>());
}

// A stretch of the inner dimension of one panel, which is `turn`th in the order of the product.
struct Part {
  int64_t turn, panel, begin, end;
  bool ends_panel;
};

// The parts of the panels whose turns are [first, last): along the inner dimension, then the next
// panel. A part is as long as the others, and at most as `depth`. ending.panel_of(turn): the order.
template <class T, class Ending>
class Parts {
 public:
  Parts(const Linear& w, int64_t first, int64_t last, int64_t depth,
        const Ending& ending)
      : inputs_(padded_inputs<T>(w.k)),
        depth_(round_up(ceil_div(inputs_, ceil_div(inputs_, depth)), QUANT_BLOCK)),
        last_(last),
        ending_(ending),
        turn_(first) {}

  int64_t depth() const { return depth_; }
  bool done() const { return turn_ == last_; }
  Part part() const {
    const int64_t end = std::min(begin_ + depth_, inputs_);
    return {turn_, ending_.panel_of(turn_), begin_, end, end == inputs_};
  }
  void advance() {
    begin_ += depth_;
    if (begin_ < inputs_) return;
    begin_ = 0;
    ++turn_;
  }

 private:
  const int64_t inputs_, depth_, last_;
  const Ending& ending_;
  int64_t turn_, begin_ = 0;
};

// Makes a part ready, a little at each step: unpacks it, or asks for it if it is dense already.
template <class T>
class Preparation {
 public:
  // Nothing to do.
  Preparation() = default;

  // `buffer`: for the part's numbers, unpacked.
  Preparation(const Linear& w, const Part& part, T* buffer) : from_(address(w, part)), to_(buffer) {
    numbers_ = w.form.bits ? buffer : reinterpret_cast<const T*>(from_);
    if (!w.form.bits) {
      stride_ = LINES;
      left_ = ceil_div((part.end - part.begin) * PANEL * static_cast<int64_t>(sizeof(T)), LINES);
    } else {
      unpack_ = unpack_of<T>(w.form);
      stride_ = w.form.bytes();
      left_ = (part.end - part.begin) / QUANT_BLOCK;
    }
  }

  // The part's numbers, once it is ready.
  const T* numbers() const { return numbers_; }

  // To be done in so many steps.
  void pace(int64_t steps) { pace_ = ceil_div(left_ << 16, std::max<int64_t>(1, steps)); }

  void step() {
    for (due_ += pace_; due_ >= 1 << 16 && left_ > 0; due_ -= 1 << 16) one();
  }
  void finish() {
    while (left_ > 0) one();
  }

 private:
  static constexpr int64_t LINES = 256;    // bytes asked for at once
  static constexpr int64_t AHEAD = 4096;  // bytes; measured best from memory, harmless in cache

  static const char* address(const Linear& w, const Part& part) {
    const auto* panels = static_cast<const char*>(w.panels);
    if (!w.form.bits) {
      const int64_t row = PANEL * static_cast<int64_t>(sizeof(T));
      return panels + (part.panel * padded_inputs<T>(w.k) + part.begin) * row;
    }
    return panels + (part.panel * w.k + part.begin) / QUANT_BLOCK * w.form.bytes();
  }

  [[gnu::always_inline]] void one() {
    const char* soon = unpack_ ? from_ + AHEAD : from_;
    for (int64_t i = 0; i < stride_; i += 64) __builtin_prefetch(soon + i, 0, 2);
    if (unpack_) {
      unpack_(from_, to_);
      to_ += QUANT_BLOCK * PANEL;
    }
    from_ += stride_;
    --left_;
  }

  const char* from_ = nullptr;
  T* to_ = nullptr;
  const T* numbers_ = nullptr;
  Unpack<T> unpack_ = nullptr;
  int64_t stride_ = 0, left_ = 0;  // bytes at once, and how often
  int64_t due_ = 0, pace_ = 0;     // in parts of 65536
};

}  // namespace pagedd
