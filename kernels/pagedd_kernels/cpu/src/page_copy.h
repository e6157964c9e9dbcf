// Copies of whole pages: copy-on-write, to host memory and back.
#pragma once

#include <algorithm>
#include <cstring>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "pool.h"

namespace pagedd {

constexpr int64_t COPY_PIECE = 256 << 10;  // bytes that one thread copies at a time
constexpr int64_t COPY_LINE = 64;
constexpr int64_t COPY_ROW = 4096;  // one page of memory: as far as hardware prefetches
constexpr int64_t COPY_ROWS = 4;  // at most, read at once

#ifdef __SSE2__
// One line, past the caches: it is not read into them first, and drives nothing out of them.
// `to` is aligned to a line.
inline void copy_line(char* to, const char* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX__)
  for (int i = 0; i < COPY_LINE; i += 32) {
    const auto x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), x);
  }
#else
  for (int i = 0; i < COPY_LINE; i += 16) {
    const auto x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), x);
  }
#endif
}

// One core waits for memory most of the time, so several rows are read at once: 1.3 times as fast
// as one after another, and 1.7 times as fast as memcpy.
inline void copy_bytes(char* to, const char* from, int64_t bytes) {
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % COPY_LINE);
  const int64_t head = std::min((COPY_LINE - past) % COPY_LINE, bytes);
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t at = head;
  while (bytes - at >= COPY_ROW) {
    const int64_t rows = std::min(COPY_ROWS, (bytes - at) / COPY_ROW);
    for (int64_t i = at; i < at + COPY_ROW; i += COPY_LINE) {
      for (int64_t row = 0; row < rows; ++row) {
        copy_line(to + i + row * COPY_ROW, from + i + row * COPY_ROW);
      }
    }
    at += rows * COPY_ROW;
  }
  std::memcpy(to + at, from + at, static_cast<size_t>(bytes - at));
  _mm_sfence();  // these stores are ordered with no others
}
#else
inline void copy_bytes(char* to, const char* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
#endif

// Pages of one or more runs of memory, so many bytes apart.
struct Pages {
  char* data;
  int64_t page_stride, run_stride;

  char* run(int64_t page, int64_t index) const {
    return data + page * page_stride + index * run_stride;
  }
};

// pairs [count][2]: whole pages, source's to target's. What a thread copies at a time is a part of a
// long run, or several short ones.
inline void page_copy(Pool& pool, const Pages& source, const Pages& target, int64_t runs,
                      int64_t run_bytes, const int64_t* pairs, int64_t count) {
  const int64_t parts = std::max<int64_t>(1, run_bytes / COPY_PIECE);
  const int64_t part_bytes = round_up(ceil_div(run_bytes, parts), COPY_LINE);
  const int64_t together = std::clamp<int64_t>(COPY_PIECE / std::max<int64_t>(1, run_bytes), 1, runs);
  const int64_t groups = ceil_div(runs, together);
  pool.run(count * groups * parts, [=](int64_t piece, int) {
    const int64_t* pair = pairs + 2 * (piece / parts / groups);
    const int64_t first = piece / parts % groups * together, begin = piece % parts * part_bytes;
    const int64_t bytes = std::min(part_bytes, run_bytes - begin);
    if (bytes <= 0) return;
    for (int64_t i = first; i < std::min(first + together, runs); ++i) {
      copy_bytes(target.run(pair[1], i) + begin, source.run(pair[0], i) + begin, bytes);
    }
  });
}

}  // namespace pagedd
