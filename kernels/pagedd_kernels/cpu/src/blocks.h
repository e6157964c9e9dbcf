// Weights of 4 or 8 bits in blocks of 32 along the inner dimension: w = scale * code + offset.
//
// They lie in panels as dense weights do, and a part of a panel is made dense, in cache, just
// before the product reads it. So the memory gives a third (or half) of the bytes, and the results
// are bit for bit those of the dense weights.
#pragma once

#include "gemm.h"
#include "pool.h"
#include "tiles.h"

namespace pagedd {

constexpr int64_t QUANT_BLOCK = 32;  // weights that share a scale and an offset
constexpr int64_t QUANT_GROUPS = QUANT_BLOCK * PANEL / W;  // vectors of W numbers in a panel's block

// How a panel's block lies in memory: codes in words of 32 bits, then PANEL scales and PANEL
// offsets. Word i of vector v holds the codes of lane i of the vectors v*n, v*n+1, …, lowest bits
// first, in the order in which a dense panel holds its numbers.
struct BlockForm {
  int32_t bits;         // 4 or 8
  int32_t scale_dtype;  // F16 or F32
  int64_t code_bytes() const { return QUANT_BLOCK * PANEL * bits / 8; }
  int64_t bytes() const { return code_bytes() + 2 * PANEL * (scale_dtype == F32 ? 4 : 2); }
};

// codes [n][k] (one a byte), scales and offsets [n][k / QUANT_BLOCK] → panels.
template <class T, class S>
void pack_blocks(Pool& pool, BlockForm form, const uint8_t* codes, const S* scales,
                 const S* offsets, int64_t n, int64_t k, char* panels) {
  constexpr int64_t STEP = Product<T>::PER_STEP;
  const int64_t blocks = k / QUANT_BLOCK, per_word = 32 / form.bits;
  pool.run(ceil_div(n, PANEL), [=](int64_t p, int) {
    for (int64_t block = 0; block < blocks; ++block) {
      char* to = panels + (p * blocks + block) * form.bytes();
      std::memset(to, 0, static_cast<size_t>(form.bytes()));
      auto* words = reinterpret_cast<uint32_t*>(to);
      auto* scale = reinterpret_cast<S*>(to + form.code_bytes());
      for (int64_t c = 0; c < std::min<int64_t>(PANEL, n - p * PANEL); ++c) {
        const int64_t row = p * PANEL + c;
        scale[c] = scales[row * blocks + block];
        scale[PANEL + c] = offsets[row * blocks + block];
        for (int64_t i = 0; i < QUANT_BLOCK; ++i) {
          const int64_t number = (i / STEP * PANEL + c) * STEP + i % STEP;
          const int64_t group = number / W, lane = number % W;
          const uint32_t code = codes[row * k + block * QUANT_BLOCK + i];
          words[group / per_word * W + lane] |= code << form.bits * (group % per_word);
        }
      }
    }
  });
}

// The scales (or offsets) of the columns that vector `kind` of a step holds.
template <class T, class S>
inline vf of_columns(const S* values, int kind) {
  if constexpr (Product<T>::PER_STEP == 1) {
    return load(values + kind * W);
  } else {
#ifdef PAGEDD_DOT_BF16
    return twice(load(values + kind / 2 * W), kind % 2);
#endif
  }
}

// How many vectors of numbers with columns of their own there are, each with its own scales.
template <class T>
constexpr int KINDS = 2 * Product<T>::PER_STEP;

// A block's scales, then its offsets: KINDS vectors of each.
template <class T, int BITS, class S>
[[gnu::always_inline]] inline void read_scales(const char* block, vf (&scales)[2 * KINDS<T>]) {
  const auto* from = reinterpret_cast<const S*>(block + QUANT_BLOCK * PANEL * BITS / 8);
#pragma GCC unroll 4
  for (int i = 0; i < KINDS<T>; ++i) {
    scales[i] = of_columns<T>(from, i);
    scales[KINDS<T> + i] = of_columns<T>(from + PANEL, i);
  }
}

// One vector of words made dense: 32 / BITS vectors of numbers. scale(i): vector i of read_scales().
template <class T, int BITS, class Scale>
[[gnu::always_inline]] inline void unpack_words(const char* words, const Scale& scale, T* to) {
  const Codes<BITS> codes(reinterpret_cast<const uint32_t*>(words));
#pragma GCC unroll 8
  for (int j = 0; j < 32 / BITS; j += 2) {
    const int a = j % KINDS<T>, b = (j + 1) % KINDS<T>;
    store_two(to + j * W, fma(codes.get(j), scale(a), scale(KINDS<T> + a)),
              fma(codes.get(j + 1), scale(b), scale(KINDS<T> + b)));
  }
}

// Two ways to make a block dense, [QUANT_BLOCK / PER_STEP][PANEL][PER_STEP] numbers: at once, its
// scales in registers; or with the scales written down first, vector by vector of its words.
template <class T, int BITS>
struct Unpacker {
  static constexpr int64_t WORDS = QUANT_GROUPS * BITS / 32;  // vectors of words
  static constexpr int64_t WORD_BYTES = W * 4, NUMBERS = 32 / BITS * W;  // of a vector
  void (*block)(const char* block, T* to);
  void (*scales)(const char* block, float* to);
};

template <class T, int BITS, class S>
constexpr Unpacker<T, BITS> unpacker() {
  using U = Unpacker<T, BITS>;
  return {[](const char* block, T* to) {
            vf scales[2 * KINDS<T>];
            read_scales<T, BITS, S>(block, scales);
            for (int64_t v = 0; v < U::WORDS; ++v) {
              unpack_words<T, BITS>(block + v * U::WORD_BYTES, [&](int i) { return scales[i]; },
                                    to + v * U::NUMBERS);
            }
          },
          [](const char* block, float* to) {
            vf scales[2 * KINDS<T>];
            read_scales<T, BITS, S>(block, scales);
            for (int i = 0; i < 2 * KINDS<T>; ++i) store(to + i * W, scales[i]);
          }};
}

template <class T, int BITS>
Unpacker<T, BITS> unpacker_of(BlockForm form) {
  return form.scale_dtype == F16 ? unpacker<T, BITS, f16>() : unpacker<T, BITS, float>();
}

}  // namespace pagedd
