// Storage types of activations and weights, and the dtype codes that cross the C interface.
#pragma once

#include <cstdint>

namespace pagedd {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

enum Dtype : int32_t { F32 = 0, BF16 = 1, F16 = 2 };

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Calls f with a value of the storage type that the code names.
template <class F>
inline void with_type(int32_t dtype, F&& f) {
  if (dtype == F32) {
    f(float{});
  } else if (dtype == BF16) {
    f(bf16{});
  } else {
    f(f16{});
  }
}

}  // namespace pagedd
