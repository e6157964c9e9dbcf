// The paged cache, and what writes to it.
#pragma once

#include <cstring>

#include "norm.h"

namespace pagedd {

// [pages][layers][2][kv_heads][page_size][head_dim], dense but for pages and layers: those lie apart
// by their strides, in numbers.
struct Cache {
  void* data;
  int64_t page_stride, layer_stride, kv_heads, page_size, head_dim;
  int32_t dtype;

  // Numbers before slot 0 of a page's head; which: 0 keys, 1 values.
  int64_t at(int64_t page, int64_t layer, int64_t which, int64_t head) const {
    return page * page_stride + layer * layer_stride +
           (which * kv_heads + head) * page_size * head_dim;
  }
};

// One batch of rows; see PagedInputs.
struct Batch {
  const int64_t* slots;      // [tokens]
  const int32_t* cu_seqlens; // [seqs + 1]
  const int32_t* seq_lens;   // [seqs]
  const int32_t* page_table; // [seqs][table_stride]
  int64_t table_stride, seqs, tokens;
};

struct Rotation {
  const float* table;  // [tokens][dim], cosines then sines; null: no rotation
  int64_t dim;
};

// Norm and rotation of one head in place.
template <class T>
inline void turn_head(T* x, int64_t head_dim, const T* norm, float eps, const float* rope,
                      int64_t rope_dim) {
  if (norm == nullptr && rope == nullptr) return;
  float scale = 1.0f;
  if (norm != nullptr) scale = inverse_rms(x, head_dim, eps);
  const auto read = [&](int64_t i, int64_t n) {
    vf v = load_up_to(x + i, n);
    if (norm != nullptr) v = v * set1(scale) * load_up_to(norm + i, n);
    return v;
  };
  const int64_t half = rope == nullptr ? 0 : rope_dim / 2;
  for (int64_t i = 0; i < half; i += W) {
    const int64_t n = half - i;
    const vf a = read(i, n), b = read(half + i, n);
    const vf cosine = load_up_to(rope + i, n), sine = load_up_to(rope + half + i, n);
    store_up_to(x + i, a * cosine - b * sine, n);
    store_up_to(x + half + i, b * cosine + a * sine, n);
  }
  if (norm == nullptr) return;
  for (int64_t i = 2 * half; i < head_dim; i += W) {
    store_up_to(x + i, read(i, head_dim - i), head_dim - i);
  }
}

// qkv [tokens][stride]: query heads, key heads, value heads. See Backend.kv_write.
template <class T>
void kv_write(Pool& pool, T* qkv, int64_t stride, int64_t heads, const Cache& cache, int64_t layer,
              const Batch& batch, Rotation rope, const T* q_norm, const T* k_norm, float eps) {
  const int64_t d = cache.head_dim, kv = cache.kv_heads;
  T* data = static_cast<T*>(cache.data);
  for_rows(pool, batch.tokens, 4 * (heads + 2 * kv) * d, [=](int64_t t, int) {
    T* row = qkv + t * stride;
    const float* angles = rope.table ? rope.table + t * rope.dim : nullptr;
    for (int64_t h = 0; h < heads; ++h) turn_head(row + h * d, d, q_norm, eps, angles, rope.dim);
    T* keys = row + heads * d;
    for (int64_t h = 0; h < kv; ++h) turn_head(keys + h * d, d, k_norm, eps, angles, rope.dim);
    const int64_t slot = batch.slots[t];
    if (slot < 0) return;
    const int64_t page = slot / cache.page_size, offset = slot % cache.page_size;
    for (int64_t h = 0; h < kv; ++h) {
      const size_t bytes = static_cast<size_t>(d) * sizeof(T);
      std::memcpy(data + cache.at(page, layer, 0, h) + offset * d, keys + h * d, bytes);
      std::memcpy(data + cache.at(page, layer, 1, h) + offset * d, keys + (kv + h) * d, bytes);
    }
  });
}

}  // namespace pagedd
