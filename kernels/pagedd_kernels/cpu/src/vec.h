// The vector layer: one set of functions, three instruction sets. Every operation above it is
// written once. Contraction of a*b+c is off in the build: what is fused says fma().
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512DQ__)
#include "vec_avx512.h"
#define PAGEDD_ISA "avx512"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "vec_avx2.h"
#define PAGEDD_ISA "avx2"
#else
#include "vec_generic.h"
#define PAGEDD_ISA "generic"
#endif

namespace pagedd {

inline vf load_up_to(const float* p, int64_t n) {
  return n >= W ? load(p) : load_n(p, static_cast<int>(n));
}
inline vf load_up_to(const bf16* p, int64_t n) {
  return n >= W ? load(p) : load_n(p, static_cast<int>(n));
}
inline vf load_up_to(const f16* p, int64_t n) {
  return n >= W ? load(p) : load_n(p, static_cast<int>(n));
}
template <class T>
inline void store_up_to(T* p, vf x, int64_t n) {
  if (n >= W) {
    store(p, x);
  } else {
    store_n(p, x, static_cast<int>(n));
  }
}

// 2^f for |f| <= 1/2: least-squares polynomial on Chebyshev nodes, relative error 2e-9.
inline vf exp2_fraction(vf f) {
  vf p = set1(0x1.41a6fdp-13f);
  p = fma(p, f, set1(0x1.5f44f1p-10f));
  p = fma(p, f, set1(0x1.3b2dfdp-7f));
  p = fma(p, f, set1(0x1.c6aed6p-5f));
  p = fma(p, f, set1(0x1.ebfbdap-3f));
  p = fma(p, f, set1(0x1.62e430p-1f));
  return fma(p, f, set1(1.0f));
}

// 2^x for x <= 127; exactly 0 from -127 down (-inf too), NaN for NaN.
inline vf exp2(vf x) {
  x = larger(set1(-160.0f), x);
  const vf n = nearest(x);
  return scale2(exp2_fraction(x - n), n);
}

// 2^x for x <= 127 with a relative error of 4e-6, less than half floats can tell; 0 from -127 down,
// NaN for NaN.
inline vf exp2_roughly(vf x) {
  x = larger(set1(-160.0f), x);
  const vf n = nearest(x), f = x - n;
  vf p = set1(0x1.3a95f4p-7f);
  p = fma(p, f, set1(0x1.ca123ap-5f));
  p = fma(p, f, set1(0x1.ec017ap-3f));
  p = fma(p, f, set1(0x1.62e0e2p-1f));
  return scale2(fma(p, f, set1(1.0f)), n);
}

constexpr float LOG2_E = 0x1.715476p+0f;

// e^x, x cut to [-110, 88]; NaN for NaN.
inline vf exp(vf x) {
  x = larger(set1(-110.0f), x);
  x = zero() - larger(set1(-88.0f), zero() - x);
  const vf n = nearest(x * set1(LOG2_E));
  vf r = fma(n, set1(-0x1.62e400p-1f), x);  // ln 2 in two parts
  r = fma(n, set1(-0x1.7f7d1cp-20f), r);
  return scale2(exp2_fraction(r * set1(LOG2_E)), n);
}

}  // namespace pagedd
