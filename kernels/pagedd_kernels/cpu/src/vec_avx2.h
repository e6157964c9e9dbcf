// Vectors of 8 floats: AVX2 with FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "types.h"

namespace pagedd {

constexpr int W = 8;
constexpr int MAX_ROWS = 6;
constexpr int WIDE_ROWS = 3;
using vf = __m256;

inline vf zero() { return _mm256_setzero_ps(); }
inline vf set1(float x) { return _mm256_set1_ps(x); }
// 1 / a for normal a from 2^-125 to 2^126, within three units of the last place
inline vf reciprocal(vf a) {
  const vf r = _mm256_rcp_ps(a);
  return _mm256_mul_ps(r, _mm256_fnmadd_ps(a, r, set1(2.0f)));
}
inline vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
inline vf larger(vf a, vf b) { return _mm256_max_ps(a, b); }
inline bool any_greater(vf a, vf b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
}
inline bool any_nan(vf a) { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0; }

inline vf from_bits(__m128i bf) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf), 16));
}
inline vf load(const float* p) { return _mm256_loadu_ps(p); }
inline vf load(const bf16* p) { return from_bits(_mm_loadu_si128((const __m128i*)p)); }
inline vf load(const f16* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
template <class T>
inline vf load_n(const T* p, int n) {
  T buffer[W] = {};
  std::memcpy(buffer, p, n * sizeof(T));
  return load(buffer);
}

inline __m128i to_bf16(vf x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  r = _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fc00000), nan);
  r = _mm256_srli_epi32(r, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
inline void store(float* p, vf x) { _mm256_storeu_ps(p, x); }
inline void store(bf16* p, vf x) { _mm_storeu_si128((__m128i*)p, to_bf16(x)); }
inline void store(f16* p, vf x) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
template <class T>
inline void store_n(T* p, vf x, int n) {
  T buffer[W];
  store(buffer, x);
  std::memcpy(p, buffer, n * sizeof(T));
}

template <class T>
inline void store_two(T* p, vf a, vf b) {
  store(p, a);
  store(p + W, b);
}

template <int BITS>
struct Codes {
  __m256i words;
  explicit Codes(const uint32_t* p) : words(_mm256_loadu_si256((const __m256i*)p)) {}
  vf get(int i) const {
    const __m256i shifted = _mm256_srli_epi32(words, BITS * i);
    return _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32((1 << BITS) - 1)));
  }
};

inline float hsum(vf x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
inline float hmax(vf x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

inline vf keep(vf x, vf other, int lo, int hi) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), lane),
                                         _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane));
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(in));
}

inline vf nearest(vf x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// Results below 2^-126 become zero; n at most 127.
inline vf scale2(vf p, vf n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(whole, _mm256_set1_epi32(127)), 23);
  const __m256i normal = _mm256_cmpgt_epi32(whole, _mm256_set1_epi32(-127));
  const vf power = _mm256_castsi256_ps(_mm256_and_si256(bits, normal));
  return _mm256_mul_ps(p, power);
}

inline void transpose(vf (&r)[W]) {
  vf t[W];
  for (int i = 0; i < W; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < W; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m256d a = _mm256_castps_pd(t[i + j]), b = _mm256_castps_pd(t[i + j + 2]);
      r[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
      r[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    }
  }
  for (int i = 0; i < 4; ++i) {
    const vf low = r[i], high = r[i + 4];
    r[i] = _mm256_permute2f128_ps(low, high, 0x20);
    r[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
  }
}

}  // namespace pagedd
