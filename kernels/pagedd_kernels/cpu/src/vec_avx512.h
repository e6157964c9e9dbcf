// Vectors of 16 floats: AVX-512 (F, BW, VL, DQ).
#pragma once

#include <immintrin.h>

#include "types.h"

namespace pagedd {

constexpr int W = 16;        // lanes
constexpr int MAX_ROWS = 12; // register tile: MAX_ROWS x 2 vectors of accumulators
constexpr int WIDE_ROWS = 6; // or WIDE_ROWS x 4
using vf = __m512;

inline vf zero() { return _mm512_setzero_ps(); }
inline vf set1(float x) { return _mm512_set1_ps(x); }
inline vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
// b where either is NaN
inline vf larger(vf a, vf b) { return _mm512_max_ps(a, b); }
inline bool any_greater(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }
inline bool any_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }

// 1 / a for normal a from 2^-125 to 2^126, within three units of the last place
inline vf reciprocal(vf a) {
  const vf r = _mm512_rcp14_ps(a);
  return _mm512_mul_ps(r, _mm512_fnmadd_ps(a, r, set1(2.0f)));
}

inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }

inline vf from_bits(__m256i bf) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf), 16));
}
inline vf load(const float* p) { return _mm512_loadu_ps(p); }
inline vf load(const bf16* p) { return from_bits(_mm256_loadu_si256((const __m256i*)p)); }
inline vf load(const f16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
// n < W lanes, the others zero
inline vf load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline vf load_n(const bf16* p, int n) {
  return from_bits(_mm256_maskz_loadu_epi16(first(n), p));
}
inline vf load_n(const f16* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
}

inline __m256i to_bf16(vf x) {
#ifdef __AVX512BF16__
  return (__m256i)_mm512_cvtneps_pbh(x);
#else
  const __m512i u = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  r = _mm512_mask_mov_epi32(r, nan, _mm512_set1_epi32(0x7fc00000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
#endif
}
inline __m256i to_f16(vf x) {
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void store(float* p, vf x) { _mm512_storeu_ps(p, x); }
inline void store(bf16* p, vf x) { _mm256_storeu_si256((__m256i*)p, to_bf16(x)); }
inline void store(f16* p, vf x) { _mm256_storeu_si256((__m256i*)p, to_f16(x)); }
inline void store_n(float* p, vf x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
inline void store_n(bf16* p, vf x, int n) { _mm256_mask_storeu_epi16(p, first(n), to_bf16(x)); }
inline void store_n(f16* p, vf x, int n) { _mm256_mask_storeu_epi16(p, first(n), to_f16(x)); }

// 2W numbers side by side
template <class T>
inline void store_two(T* p, vf a, vf b) {
  store(p, a);
  store(p + W, b);
}
#ifdef __AVX512BF16__
inline void store_two(bf16* p, vf a, vf b) {
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}
#endif

// W words of 32 bits, each of 32 / BITS codes; get(i) gives code i of each as floats.
template <int BITS>
struct Codes {
  __m512i words;
  explicit Codes(const uint32_t* p) : words(_mm512_loadu_si512(p)) {}
  vf get(int i) const {
    const __m512i shifted = _mm512_srli_epi32(words, static_cast<unsigned>(BITS * i));
    if constexpr (BITS == 4) {  // a table look-up takes the lowest four bits of an index
      const vf table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      return _mm512_permutexvar_ps(shifted, table);
    } else {
      return _mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(255)));
    }
  }
};

inline float hsum(vf x) { return _mm512_reduce_add_ps(x); }
inline float hmax(vf x) { return _mm512_reduce_max_ps(x); }

// Lanes lo <= i < hi of x, the others from other.
inline vf keep(vf x, vf other, int lo, int hi) {
  return _mm512_mask_mov_ps(other, static_cast<__mmask16>(first(hi) & ~first(lo)), x);
}

inline vf nearest(vf x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// p * 2^n for whole n, 0 below n = -126: a result too small to be normal takes the processor long
inline vf scale2(vf p, vf n) {
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, set1(-126.0f), _CMP_NLT_UQ), p, n);
}

// r[i] lane j <-> r[j] lane i
inline void transpose(vf (&r)[W]) {
  vf t[W];
  for (int i = 0; i < W; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < W; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int h = 0; h < 2; ++h) {
      t[8 * h + i] = _mm512_shuffle_f32x4(r[8 * h + i], r[8 * h + i + 4], 0x88);
      t[8 * h + i + 4] = _mm512_shuffle_f32x4(r[8 * h + i], r[8 * h + i + 4], 0xdd);
    }
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
  }
}

// Columns c to c + 3 of W rows of `stride` numbers, as four vectors
inline void four_columns(const float* from, int64_t stride, vf (&column)[4]) {
  vf r[4];
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_castps128_ps512(_mm_loadu_ps(from + i * stride));
    r[i] = _mm512_mask_broadcast_f32x4(r[i], 0x00f0, _mm_loadu_ps(from + (i + 4) * stride));
    r[i] = _mm512_mask_broadcast_f32x4(r[i], 0x0f00, _mm_loadu_ps(from + (i + 8) * stride));
    r[i] = _mm512_mask_broadcast_f32x4(r[i], 0xf000, _mm_loadu_ps(from + (i + 12) * stride));
  }
  for (int i = 0; i < 2; ++i) {
    const vf a = i ? _mm512_unpackhi_ps(r[0], r[1]) : _mm512_unpacklo_ps(r[0], r[1]);
    const vf b = i ? _mm512_unpackhi_ps(r[2], r[3]) : _mm512_unpacklo_ps(r[2], r[3]);
    const __m512d low = _mm512_castps_pd(a), high = _mm512_castps_pd(b);
    column[2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
    column[2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
  }
}

#ifdef __AVX512BF16__
#define PAGEDD_DOT_BF16 1
// Pairs of bf16 as the bits of a float: c + a.even*b.even + a.odd*b.odd in float32.
inline vf dot_pairs(vf a, vf b, vf c) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }
// The lower (0) or upper (1) half of the lanes, each lane twice
inline vf twice(vf x, int half) {
  const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(8 * half)), x);
}
// Two rows of 2W numbers → 2W pairs of one of each, in an order of their own that costs least.
inline void pair_up(vf even, vf odd, float* to) {
  const __m512i a = _mm512_castps_si512(even), b = _mm512_castps_si512(odd);
  _mm512_storeu_si512(to, _mm512_unpacklo_epi16(a, b));
  _mm512_storeu_si512(to + W, _mm512_unpackhi_epi16(a, b));
}
// 2W floats in the order of pair_up → in ascending order
inline void unpaired(const float* from, vf& low, vf& high) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const vf a = load(from), b = load(from + W);
  low = _mm512_permutex2var_ps(a, lanes, b);
  high = _mm512_permutex2var_ps(a, _mm512_add_epi32(lanes, _mm512_set1_epi32(8)), b);
}
// 2n or fewer numbers (W pairs at most), the others zero, as bits
inline vf load_pairs(const bf16* p, int numbers) {
  const __mmask32 m = numbers >= 32 ? 0xffffffffu : (1u << numbers) - 1;
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(m, p));
}
#endif

}  // namespace pagedd
