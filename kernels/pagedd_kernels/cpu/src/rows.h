// Rows of a matrix by their numbers: the embeddings of tokens.
//
// They lie anywhere in a large matrix, and nothing foresees which: all of a row lies together, and
// the rows that come next are asked for beforehand.
#pragma once

#include <cstring>

#include "blocks.h"

namespace pagedd {

struct Rows {
  int32_t dtype;
  int64_t n, k;    // rows, numbers of each
  const void* data;
  int64_t stride;  // bytes from row to row
  BlockForm form;  // of quantised rows; bits 0: dense
};

// A quantised row: codes as in BlockForm with vectors of one row, then its scales, then its offsets.
inline int64_t row_code_bytes(BlockForm form, int64_t k) {
  return round_up(k, 32 / form.bits * W) * form.bits / 8;
}
inline int64_t row_bytes(BlockForm form, int64_t k) {
  return row_code_bytes(form, k) + 2 * (k / QUANT_BLOCK) * (form.scale_dtype == F32 ? 4 : 2);
}

// codes [n][k] (one a byte), scales and offsets [n][k / QUANT_BLOCK] → rows, one after another.
template <class S>
void pack_rows(Pool& pool, BlockForm form, const uint8_t* codes, const S* scales, const S* offsets,
               int64_t n, int64_t k, char* rows) {
  const int64_t blocks = k / QUANT_BLOCK, per_word = 32 / form.bits;
  const int64_t stride = row_bytes(form, k), code_bytes = row_code_bytes(form, k);
  pool.run(n, [=](int64_t row, int) {
    char* to = rows + row * stride;
    std::memset(to, 0, static_cast<size_t>(stride));
    auto* words = reinterpret_cast<uint32_t*>(to);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t group = i / W, lane = i % W;
      const uint32_t code = codes[row * k + i];
      words[group / per_word * W + lane] |= code << form.bits * (group % per_word);
    }
    auto* scale = reinterpret_cast<S*>(to + code_bytes);
    std::copy_n(scales + row * blocks, blocks, scale);
    std::copy_n(offsets + row * blocks, blocks, scale + blocks);
  });
}

template <class T, int BITS, class S>
void unpack_row(const char* from, int64_t k, T* to) {
  constexpr int PER_WORD = 32 / BITS, AT_ONCE = 64;  // blocks whose scales are read together
  const auto* words = reinterpret_cast<const uint32_t*>(from);
  const int64_t blocks = k / QUANT_BLOCK;
  const auto* scales = reinterpret_cast<const S*>(from + row_code_bytes({BITS, 0}, k));
  for (int64_t first = 0; first < blocks; first += AT_ONCE) {
    const int64_t last = std::min<int64_t>(first + AT_ONCE, blocks);
    float scale[AT_ONCE], offset[AT_ONCE];
    for (int64_t i = first; i < last; i += W) {
      store(scale + i - first, load_up_to(scales + i, last - i));
      store(offset + i - first, load_up_to(scales + blocks + i, last - i));
    }
    const int64_t end = last * QUANT_BLOCK;
    for (int64_t i = first * QUANT_BLOCK; i < end; words += W) {
      const Codes<BITS> codes(words);
#pragma GCC unroll 8
      for (int j = 0; j < PER_WORD; ++j, i += W) {
        const int64_t block = i / QUANT_BLOCK - first;
        if (i < end) store(to + i, fma(codes.get(j), set1(scale[block]), set1(offset[block])));
      }
    }
  }
}

// ids [count] → out [count][k]; nothing is written and false returned if an id is no row.
template <class T>
bool take_rows(Pool& pool, const Rows& rows, const int64_t* ids, int64_t count, T* out) {
  constexpr int64_t PIECE = 32, AHEAD = 16;  // rows
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= rows.n) return false;
  }
  const int64_t dense = rows.k * static_cast<int64_t>(sizeof(T));
  const int64_t bytes = rows.form.bits ? row_bytes(rows.form, rows.k) : dense;
  const auto row_at = [&](int64_t i) {
    return static_cast<const char*>(rows.data) + ids[i] * rows.stride;
  };
  const bool half = rows.form.scale_dtype == F16;
  const auto unpack = rows.form.bits == 4
                          ? (half ? unpack_row<T, 4, f16> : unpack_row<T, 4, float>)
                          : (half ? unpack_row<T, 8, f16> : unpack_row<T, 8, float>);
  pool.run(ceil_div(count, PIECE), [&](int64_t piece, int) {
    const int64_t begin = piece * PIECE, end = std::min(begin + PIECE, count);
    for (int64_t i = begin - AHEAD; i < end; ++i) {
      if (i + AHEAD < end) {
        const char* row = row_at(i + AHEAD);
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, 0, 2);
        __builtin_prefetch(row + bytes - 1, 0, 2);
      }
      if (i < begin) continue;
      if (rows.form.bits) {
        unpack(row_at(i), rows.k, out + i * rows.k);
      } else {
        std::memcpy(out + i * rows.k, row_at(i), static_cast<size_t>(dense));
      }
    }
  });
  return true;
}

}  // namespace pagedd
