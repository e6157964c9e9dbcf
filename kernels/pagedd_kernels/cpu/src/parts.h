// Parts of packed weights, one after another, each made ready while the one before is in use.
#pragma once

#include <type_traits>

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

// Where a part's weights lie.
template <class T>
const char* address(const Linear& w, const Part& part) {
  const auto* panels = static_cast<const char*>(w.panels);
  if (w.form.bits) {
    return panels + (part.panel * w.k + part.begin) / QUANT_BLOCK * w.form.bytes();
  }
  const int64_t row = PANEL * static_cast<int64_t>(sizeof(T));
  return panels + (part.panel * padded_inputs<T>(w.k) + part.begin) * row;
}

// How much of some work is due at each of so many steps.
class Pace {
 public:
  Pace() = default;
  Pace(int64_t work, int64_t steps) : each_(ceil_div(work << 16, std::max<int64_t>(1, steps))) {}
  int64_t each() const { return ceil_div(each_, 1 << 16); }  // at a step, at most
  void step() { due_ += each_; }
  // Whether so much is due; if so, it counts as done.
  bool take(int64_t work) {
    if (due_ < work << 16) return false;
    due_ -= work << 16;
    return true;
  }

 private:
  int64_t each_ = 0, due_ = 0;  // in parts of 65536
};

// A part that is dense already is asked for, a little at each step.
template <class T>
class Announcement {
 public:
  Announcement() = default;
  Announcement(const Linear& w, const Part& part, T*, float*) : from_(address<T>(w, part)) {
    numbers_ = reinterpret_cast<const T*>(from_);
    left_ = ceil_div((part.end - part.begin) * PANEL * static_cast<int64_t>(sizeof(T)), BYTES);
  }

  const T* numbers() const { return numbers_; }
  void pace(int64_t steps) { pace_ = Pace(left_, steps); }
  [[gnu::always_inline]] void step() {
    for (pace_.step(); left_ > 0 && pace_.take(1); --left_, from_ += BYTES) {
      for (int64_t i = 0; i < BYTES; i += 64) __builtin_prefetch(from_ + i, 0, 2);
    }
  }
  void finish() {}

 private:
  static constexpr int64_t BYTES = 256;  // asked for at once

  const char* from_ = nullptr;
  const T* numbers_ = nullptr;
  int64_t left_ = 0;
  Pace pace_;
};

// A part of 4 or 8 bits is unpacked, a little at each step: by vectors of words where steps are
// many, so that the tile unit meanwhile goes on, else by blocks, which costs less in all.
template <class T, int BITS>
class Unpacking {
 public:
  Unpacking() = default;
  // `buffer`: for the part's numbers; `scales`: for 2 KINDS vectors of a block's.
  Unpacking(const Linear& w, const Part& part, T* buffer, float* scales)
      : unpacker_(unpacker_of<T, BITS>(w.form)),
        from_(address<T>(w, part)),
        bytes_(w.form.bytes()),
        left_((part.end - part.begin) / QUANT_BLOCK * WORDS),
        numbers_(buffer),
        to_(buffer),
        scales_(scales) {}

  // Once it is finished.
  const T* numbers() const { return numbers_; }

  void pace(int64_t steps) {
    pace_ = Pace(left_, steps);
    by_blocks_ = pace_.each() > 2;
  }
  [[gnu::always_inline]] void step() {
    pace_.step();
    if (by_blocks_) {
      while (left_ > 0 && pace_.take(WORDS)) block();
    } else {
      while (left_ > 0 && pace_.take(1)) words();
    }
  }
  void finish() {
    while (word_ > 0) words();
    while (left_ > 0) block();
  }

 private:
  using U = Unpacker<T, BITS>;
  static constexpr int64_t WORDS = U::WORDS;
  static constexpr int64_t AHEAD = 4096;  // bytes; measured best from memory, harmless in cache

  [[gnu::always_inline]] static void ask(const char* from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + AHEAD + i, 0, 2);
  }

  void block() {
    ask(from_, bytes_);
    unpacker_.block(from_, to_);
    from_ += bytes_;
    to_ += QUANT_BLOCK * PANEL;
    left_ -= WORDS;
  }

  [[gnu::always_inline]] void words() {
    const char* words = from_ + word_ * U::WORD_BYTES;
    if (word_ == 0) {
      unpacker_.scales(from_, scales_);
      ask(from_ + WORDS * U::WORD_BYTES, bytes_ - WORDS * U::WORD_BYTES);
    }
    ask(words, U::WORD_BYTES);
    unpack_words<T, BITS>(words, [&](int i) { return load(scales_ + i * W); }, to_);
    to_ += U::NUMBERS;
    --left_;
    if (++word_ < WORDS) return;
    word_ = 0;
    from_ += bytes_;
  }

  Unpacker<T, BITS> unpacker_{};
  const char* from_ = nullptr;        // the block in work
  int64_t bytes_ = 0, left_ = 0;      // of a block; vectors of words
  int64_t word_ = 0;                  // the next vector of the block
  const T* numbers_ = nullptr;
  T* to_ = nullptr;
  float* scales_ = nullptr;
  Pace pace_;
  bool by_blocks_ = false;
};

// Makes a part ready, a little at each step.
template <class T, int BITS>
using Preparation = std::conditional_t<BITS == 0, Announcement<T>, Unpacking<T, BITS>>;

}  // namespace pagedd
