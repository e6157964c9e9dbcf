// Matrix products in the tile unit of recent Intel processors (AMX, bfloat16; Intel SDM, volume 1,
// chapter 18): 16 rows of A times 16 columns of B over 32 numbers of the inner dimension at once.
//
// A row of the result depends on its own row of A alone, and the order of its additions is the
// same for every number of rows. B lies as DotPairs wants it.
#pragma once

#include "gemm.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__linux__)
#define PAGEDD_TILES 1
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pagedd {

// A matrix: its first number, and what lies between its rows, in numbers. (Of B: of 32 bits, a pair
// row holds two rows.)
template <class T>
struct Matrix {
  T* first;
  int64_t stride;
};

#ifdef PAGEDD_TILES

constexpr int64_t TILE_ROWS = 16;
constexpr int64_t TILE_DEPTH = 32;  // of the inner dimension

// Whether this process may use the unit: Linux gives its large state on request only
// (Documentation/arch/x86/xstate.rst).
inline bool tiles_allowed() {
  constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
  static const bool allowed = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
  return allowed;
}

// The unit's eight tiles with as many rows as given, of 64 bytes, while this object lives.
class TileSetup {
 public:
  explicit TileSetup(const int64_t (&rows)[8]) {
    alignas(64) Layout layout{};
    layout.palette = 1;
    for (int i = 0; i < 8; ++i) {
      layout.row_bytes[i] = 64;
      layout.rows[i] = static_cast<uint8_t>(std::clamp<int64_t>(rows[i], 1, TILE_ROWS));
    }
    // GCC 12 takes the instruction to read eight bytes only, and may leave out the other stores.
    asm volatile("" : : "r"(&layout) : "memory");
    _tile_loadconfig(&layout);
  }
  ~TileSetup() { _tile_release(); }
  TileSetup(const TileSetup&) = delete;
  TileSetup& operator=(const TileSetup&) = delete;

 private:
  struct Layout {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
};

// The unit set up for blocks of at most 2 · TILE_ROWS rows. Tiles 0 to 3 hold sums (upper and lower
// rows by left and right columns), 4 and 5 rows of A, 6 and 7 columns of B.
class TileUnit {
 public:
  explicit TileUnit(int64_t rows)
      : setup_({rows, rows, rows - TILE_ROWS, rows - TILE_ROWS, rows, rows - TILE_ROWS, TILE_ROWS,
                TILE_ROWS}) {}

  // c (+)= a * b for 2W columns; `pairs` of the inner dimension, a multiple of TILE_DEPTH / 2. With
  // `lower` the rows are all that the unit is set up for, else the upper TILE_ROWS at most. Calls
  // meanwhile() once for TILE_DEPTH of the inner dimension: the unit leaves the processor's other
  // parts idle.
  template <class F>
  void multiply(Matrix<const bf16> a, Matrix<const float> b, int64_t pairs, Matrix<float> c,
                bool lower, bool fresh, F&& meanwhile) const {
    if (lower) {
      run<true>(a, b, pairs, c, fresh, meanwhile);
    } else {
      run<false>(a, b, pairs, c, fresh, meanwhile);
    }
  }

 private:
  template <bool LOWER, class F>
  static void run(Matrix<const bf16> a, Matrix<const float> b, int64_t pairs, Matrix<float> c,
                  bool fresh, F& meanwhile) {
    const int64_t a_row = 2 * a.stride, b_row = 4 * b.stride, c_row = 4 * c.stride;  // bytes
    float* below = c.first + TILE_ROWS * c.stride;
    if (fresh) {
      _tile_zero(0);
      _tile_zero(1);
      if (LOWER) {
        _tile_zero(2);
        _tile_zero(3);
      }
    } else {
      _tile_loadd(0, c.first, c_row);
      _tile_loadd(1, c.first + W, c_row);
      if (LOWER) {
        _tile_loadd(2, below, c_row);
        _tile_loadd(3, below + W, c_row);
      }
    }
    for (int64_t s = 0; s < pairs; s += TILE_DEPTH / 2) {
      _tile_loadd(4, a.first + 2 * s, a_row);
      if (LOWER) _tile_loadd(5, a.first + TILE_ROWS * a.stride + 2 * s, a_row);
      _tile_loadd(6, b.first + s * b.stride, b_row);
      _tile_dpbf16ps(0, 4, 6);
      if (LOWER) _tile_dpbf16ps(2, 5, 6);
      _tile_loadd(7, b.first + s * b.stride + W, b_row);
      _tile_dpbf16ps(1, 4, 7);
      if (LOWER) _tile_dpbf16ps(3, 5, 7);
      meanwhile();
    }
    _tile_stored(0, c.first, c_row);
    _tile_stored(1, c.first + W, c_row);
    if (LOWER) {
      _tile_stored(2, below, c_row);
      _tile_stored(3, below + W, c_row);
    }
  }

  TileSetup setup_;
};

// Rows in multiples of TILE_ROWS, the unit set up for twice as many at once.
inline void multiply_tiles(const TileUnit& unit, int64_t rows, Matrix<const bf16> a,
                           Matrix<const float> b, int64_t pairs, Matrix<float> c, int64_t columns,
                           bool fresh) {
  for (int64_t r = 0; r < rows; r += 2 * TILE_ROWS) {
    for (int64_t i = 0; i < columns; i += PANEL) {
      unit.multiply({a.first + r * a.stride, a.stride}, {b.first + i, b.stride}, pairs,
                    {c.first + r * c.stride + i, c.stride}, r + TILE_ROWS < rows, fresh, [] {});
    }
  }
}

#else

constexpr int64_t TILE_DEPTH = 1;

#endif

// The inner dimension of packed bfloat16 weights is filled up with zeros to a multiple of this.
template <class T>
constexpr int64_t inner_multiple() {
  return std::is_same_v<T, bf16> ? std::max<int64_t>(TILE_DEPTH, Product<T>::PER_STEP)
                                 : Product<T>::PER_STEP;
}

}  // namespace pagedd
