// The C interface: one function an operation. Shapes and meanings are those of the Python side;
// strides count numbers. An engine is one thread of calls; a lock keeps a second one out.
#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <mutex>
#include <new>

#include "greedy.h"
#include "page_copy.h"
#include "rows.h"
#include "stack.h"

using namespace pagedd;

struct Engine {
  explicit Engine(int threads) : pool(threads) {}
  Pool pool;
  AttentionPlan plan;
  Scratch between;  // what lies between the operations of one call
  std::mutex calls;
};

namespace {
using Lock = std::lock_guard<std::mutex>;
}  // namespace

extern "C" {

const char* pagedd_isa() {
#ifdef PAGEDD_TILES
  if (tiles_allowed()) return PAGEDD_ISA "-amx";
#endif
#ifdef PAGEDD_DOT_BF16
  return PAGEDD_ISA "-bf16";
#else
  return PAGEDD_ISA;
#endif
}

Engine* pagedd_engine_new(int32_t threads) { return new (std::nothrow) Engine(threads); }

void pagedd_engine_free(Engine* engine) { delete engine; }

void pagedd_set_threads(Engine* engine, int32_t threads) {
  const Lock lock(engine->calls);
  engine->pool.resize(threads);
}

// Asks for huge pages in a range, where the system has them; what is in use already stays.
void pagedd_huge_pages(void* memory, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  const auto at = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t begin = (at + 4095) / 4096 * 4096;
  const uintptr_t end = (at + static_cast<uintptr_t>(bytes)) / 4096 * 4096;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)memory, (void)bytes;
#endif
}

int64_t pagedd_panel() { return PANEL; }

int64_t pagedd_packed_bytes(int32_t dtype, int64_t n, int64_t k) {
  return packed_bytes(dtype, n, k);
}

void pagedd_pack(Engine* engine, int32_t dtype, const void* weight, int64_t ldw, int64_t n,
                 int64_t k, void* panels) {
  const Lock lock(engine->calls);
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    pack(engine->pool, static_cast<const T*>(weight), ldw, n, k, static_cast<T*>(panels));
  });
}

int64_t pagedd_packed_block_bytes(int32_t bits, int32_t scale_dtype, int64_t n, int64_t k) {
  return ceil_div(n, PANEL) * (k / QUANT_BLOCK) * BlockForm{bits, scale_dtype}.bytes();
}

void pagedd_pack_blocks(Engine* engine, int32_t dtype, int32_t bits, int32_t scale_dtype,
                        const void* codes, const void* scales, const void* offsets, int64_t n,
                        int64_t k, void* panels) {
  const Lock lock(engine->calls);
  const auto pack_as = [&](auto t, auto s) {
    using S = decltype(s);
    pack_blocks<decltype(t)>(engine->pool, BlockForm{bits, scale_dtype},
                             static_cast<const uint8_t*>(codes), static_cast<const S*>(scales),
                             static_cast<const S*>(offsets), n, k, static_cast<char*>(panels));
  };
  with_type(dtype, [&](auto t) {
    if (scale_dtype == F16) {
      pack_as(t, f16{});
    } else {
      pack_as(t, float{});
    }
  });
}

void pagedd_linear(Engine* engine, const Linear* weights, const void* x, int64_t ldx, void* out,
                   int64_t rows) {
  const Lock lock(engine->calls);
  linear(engine->pool, *weights, x, ldx, out, rows);
}

void pagedd_greedy(Engine* engine, const Linear* weights, const void* x, int64_t ldx, int64_t rows,
                   int64_t* out) {
  const Lock lock(engine->calls);
  with_type(weights->dtype, [&](auto t) {
    using T = decltype(t);
    greedy(engine->pool, engine->between, *weights, static_cast<const T*>(x), ldx, rows, out);
  });
}

int64_t pagedd_row_bytes(int32_t bits, int32_t scale_dtype, int64_t k) {
  return row_bytes({bits, scale_dtype}, k);
}

void pagedd_pack_rows(Engine* engine, int32_t bits, int32_t scale_dtype, const void* codes,
                      const void* scales, const void* offsets, int64_t n, int64_t k, void* rows) {
  const Lock lock(engine->calls);
  const auto pack_as = [&](auto s) {
    using S = decltype(s);
    pack_rows(engine->pool, {bits, scale_dtype}, static_cast<const uint8_t*>(codes),
              static_cast<const S*>(scales), static_cast<const S*>(offsets), n, k,
              static_cast<char*>(rows));
  };
  if (scale_dtype == F16) {
    pack_as(f16{});
  } else {
    pack_as(float{});
  }
}

// 0: an id is no row.
int32_t pagedd_take_rows(Engine* engine, const Rows* rows, const int64_t* ids, int64_t count,
                         void* out) {
  const Lock lock(engine->calls);
  bool taken = false;
  with_type(rows->dtype, [&](auto t) {
    taken = take_rows(engine->pool, *rows, ids, count, static_cast<decltype(t)*>(out));
  });
  return taken;
}

void pagedd_rms_norm(Engine* engine, int32_t dtype, const void* x, void* residual,
                     const void* weight, float eps, void* out, int64_t rows, int64_t n) {
  const Lock lock(engine->calls);
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    rms_norm(engine->pool, static_cast<const T*>(x), static_cast<T*>(residual),
             static_cast<const T*>(weight), eps, static_cast<T*>(out), rows, n);
  });
}

void pagedd_silu_mul(Engine* engine, int32_t dtype, const void* gate_up, void* out, int64_t rows,
                     int64_t n) {
  const Lock lock(engine->calls);
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    silu_mul(engine->pool, static_cast<const T*>(gate_up), static_cast<T*>(out), n, rows,
             n);
  });
}

void pagedd_kv_write(Engine* engine, const Cache* cache, const Batch* batch, void* qkv,
                     int64_t stride, int64_t heads, int64_t layer, const float* rope,
                     int64_t rope_dim, const void* q_norm, const void* k_norm, float eps) {
  const Lock lock(engine->calls);
  with_type(cache->dtype, [&](auto t) {
    using T = decltype(t);
    kv_write(engine->pool, static_cast<T*>(qkv), stride, heads, *cache, layer, *batch,
             Rotation{rope, rope_dim}, static_cast<const T*>(q_norm),
             static_cast<const T*>(k_norm), eps);
  });
}

void pagedd_attention(Engine* engine, const Cache* cache, const Batch* batch, const void* q,
                      int64_t q_stride, int64_t heads, int64_t layer, float scale, int64_t window,
                      void* out) {
  const Lock lock(engine->calls);
  const AttentionCall call{q, q_stride, out, heads, layer, scale * LOG2_E, window};
  with_type(cache->dtype, [&](auto t) {
    paged_attention<decltype(t)>(engine->pool, engine->plan, call, *cache, *batch);
  });
}

void pagedd_stack(Engine* engine, const Stack* stack, const Cache* cache, const Batch* batch,
                  const float* rope, int64_t rope_dim, const int64_t* wanted, int64_t count,
                  void* residual, void* out) {
  const Lock lock(engine->calls);
  with_type(cache->dtype, [&](auto t) {
    using T = decltype(t);
    run_stack(engine->pool, engine->plan, engine->between, *stack, *cache, *batch,
              Rotation{rope, rope_dim}, Wanted{wanted, count}, static_cast<T*>(residual),
              static_cast<T*>(out));
  });
}

void pagedd_page_copy(Engine* engine, const Pages* source, const Pages* target, int64_t runs,
                      int64_t run_bytes, const int64_t* pairs, int64_t count) {
  const Lock lock(engine->calls);
  page_copy(engine->pool, *source, *target, runs, run_bytes, pairs, count);
}

void pagedd_argmax(Engine* engine, const float* x, int64_t stride, int64_t rows, int64_t n,
                   int64_t* out) {
  const Lock lock(engine->calls);
  argmax(engine->pool, x, stride, rows, n, out);
}

void pagedd_draw(Engine* engine, const float* x, int64_t stride, int64_t rows, int64_t n,
                 const float* inverse_temperature, const double* u, int64_t* out) {
  const Lock lock(engine->calls);
  draw(engine->pool, x, stride, rows, n, inverse_temperature, u, out);
}
}
