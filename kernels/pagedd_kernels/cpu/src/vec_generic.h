// Vectors of 4 floats in the compilers' own vector types: every other processor.
#pragma once

#include <cstring>
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#include "types.h"

namespace pagedd {

constexpr int W = 4;
constexpr int MAX_ROWS = 6;
constexpr int WIDE_ROWS = 3;
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

inline vf zero() { return vf{0, 0, 0, 0}; }
inline vf set1(float x) { return vf{x, x, x, x}; }
// 1 / a for normal a from 2^-125 to 2^126
inline vf reciprocal(vf a) { return set1(1.0f) / a; }
inline vf fma(vf a, vf b, vf c) {
#ifdef __aarch64__
  return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
inline vf choose(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
inline vf larger(vf a, vf b) { return choose((vi)(a > b), a, b); }
inline bool any(vi mask) { return (mask[0] | mask[1] | mask[2] | mask[3]) != 0; }
inline bool any_greater(vf a, vf b) { return any((vi)(a > b)); }
inline bool any_nan(vf a) { return any((vi)(a != a)); }

inline float as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline uint32_t as_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float widen(float x) { return x; }
inline float widen(bf16 x) { return as_float(static_cast<uint32_t>(x.bits) << 16); }
inline float widen(f16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16, rest = (x.bits & 0x7fffu) << 13;
  if ((x.bits & 0x7c00u) == 0x7c00u) return as_float(sign | 0x7f800000u | rest);  // inf, NaN
  return as_float(sign | as_bits(as_float(rest) * 0x1p112f));  // exact, subnormals as well
}
inline void narrow(float* p, float x) { *p = x; }
inline void narrow(bf16* p, float x) {
  const uint32_t u = as_bits(x);
  p->bits = x != x ? 0x7fc0 : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline void narrow(f16* p, float x) {
  const uint32_t sign = (as_bits(x) >> 16) & 0x8000u, u = as_bits(x) & 0x7fffffffu;
  uint32_t half;
  if (u > 0x7f800000u) {
    half = 0x7e00;
  } else if (u >= 0x477ff000u) {  // rounds to 65520 or more
    half = 0x7c00;
  } else if (u < 0x38800000u) {  // subnormal: let the addition round to steps of 2^-24
    half = as_bits(as_float(u) + 0.5f) - 0x3f000000u;
  } else {
    half = (u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13;
  }
  p->bits = static_cast<uint16_t>(sign | half);
}

template <class T>
inline vf load(const T* p) {
  return vf{widen(p[0]), widen(p[1]), widen(p[2]), widen(p[3])};
}
template <class T>
inline vf load_n(const T* p, int n) {
  vf x = zero();
  for (int i = 0; i < n; ++i) x[i] = widen(p[i]);
  return x;
}
template <class T>
inline void store_n(T* p, vf x, int n) {
  for (int i = 0; i < n; ++i) narrow(p + i, x[i]);
}
template <class T>
inline void store(T* p, vf x) {
  store_n(p, x, W);
}
template <>
inline vf load<float>(const float* p) {
  vf x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
template <>
inline void store<float>(float* p, vf x) {
  std::memcpy(p, &x, sizeof x);
}

template <class T>
inline void store_two(T* p, vf a, vf b) {
  store(p, a);
  store(p + W, b);
}

template <int BITS>
struct Codes {
  vi words;
  explicit Codes(const uint32_t* p) { std::memcpy(&words, p, sizeof words); }
  vf get(int i) const {  // what the shift of a sign brings in lies above the code
    return __builtin_convertvector((words >> (BITS * i)) & ((1 << BITS) - 1), vf);
  }
};

inline float hsum(vf x) { return (x[0] + x[2]) + (x[1] + x[3]); }
inline float hmax(vf x) {
  const float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
  return a > b ? a : b;
}
inline vf keep(vf x, vf other, int lo, int hi) {
  const vi lane = {0, 1, 2, 3};
  return choose((vi)(lane >= lo) & (vi)(lane < hi), x, other);
}
// |x| < 2^22
inline vf nearest(vf x) {
  const vf magic = set1(0x1.8p23f);
  return (x + magic) - magic;
}
inline vf scale2(vf p, vf n) {
  const vi whole = __builtin_convertvector(n, vi);
  const vi bits = ((whole + 127) << 23) & (vi)(whole > -127);
  return p * (vf)bits;
}
inline void transpose(vf (&r)[W]) {
  for (int i = 0; i < W; ++i) {
    for (int j = 0; j < i; ++j) {
      const float t = r[i][j];
      r[i][j] = r[j][i];
      r[j][i] = t;
    }
  }
}

}  // namespace pagedd
