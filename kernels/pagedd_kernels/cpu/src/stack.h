// All layers of a decoder in one call: the operations one after another as the Python side would
// call them, with memory for what lies between that stays warm from layer to layer.
#pragma once

#include "attention_plan.h"
#include "linear.h"

namespace pagedd {

struct Block {
  const Linear *qkv, *output, *gate_up, *down;
  const void *input_norm, *post_norm;
  const void *q_norm, *k_norm;  // or null
  int64_t window;               // 0: none
  int32_t rotated;
};

struct Stack {
  const Block* blocks;
  int64_t count;
  const void* final_norm;
  int64_t hidden, heads;
  float eps, scale;  // scale: of scores
};

// From row to row an odd number of cache lines: rows that lie a power of two apart would share few
// sets of the cache, and drive each other out of it.
template <class T>
int64_t row_stride(int64_t width) {
  constexpr int64_t LINE = 64 / sizeof(T);
  return (ceil_div(width, LINE) | 1) * LINE;
}

// What lies between the operations, each [rows][its width], `gated` with its own stride.
template <class T>
struct Between {
  T *x, *qkv, *attended, *gate_up, *gated, *sum;
  int64_t gated_stride;

  Between(Scratch& memory, const Block& block, int64_t rows)
      : gated_stride(row_stride<T>(block.down->k)) {
    const int64_t widths[] = {block.qkv->k,     block.qkv->n, block.output->k,
                              halves_are_panels(*block.gate_up) ? 0 : block.gate_up->n,
                              gated_stride, block.output->n};
    T** const parts[] = {&x, &qkv, &attended, &gate_up, &gated, &sum};
    size_t total = 0, at[6];
    for (int i = 0; i < 6; ++i) {
      at[i] = total;
      const int64_t bytes = rows * widths[i] * static_cast<int64_t>(sizeof(T));
      total += static_cast<size_t>(round_up(bytes, 64));
    }
    char* memory_begin = memory.get(total);
    for (int i = 0; i < 6; ++i) *parts[i] = reinterpret_cast<T*>(memory_begin + at[i]);
  }
};

// Rows whose hidden states are wanted, in ascending order; count < 0: all.
struct Wanted {
  const int64_t* rows;
  int64_t count;
};

// Moves the wanted rows of x to its front.
template <class T>
void move_up(T* x, int64_t width, const Wanted& wanted) {
  for (int64_t i = 0; i < wanted.count; ++i) {
    std::memmove(x + i * width, x + wanted.rows[i] * width, static_cast<size_t>(width) * sizeof(T));
  }
}

// residual [rows][hidden], the embeddings, is used up; out [wanted rows][hidden] after the final
// norm. Beyond its keys and values the last layer is computed for the wanted rows alone.
template <class T>
void run_stack(Pool& pool, AttentionPlan& plan, Scratch& memory, const Stack& stack,
               const Cache& cache, const Batch& batch, Rotation rope, const Wanted& wanted,
               T* residual, T* out) {
  int64_t rows = batch.tokens;
  const Between<T> b(memory, stack.blocks[0], rows);
  const T* first = static_cast<const T*>(stack.blocks[0].input_norm);
  rms_norm<T>(pool, residual, nullptr, first, stack.eps, b.x, rows, stack.hidden);
  for (int64_t layer = 0; layer < stack.count; ++layer) {
    const Block& block = stack.blocks[layer];
    const int64_t width = block.qkv->n;
    linear(pool, *block.qkv, b.x, block.qkv->k, b.qkv, rows);
    kv_write(pool, b.qkv, width, stack.heads, cache, layer, batch,
             block.rotated ? rope : Rotation{nullptr, 0}, static_cast<const T*>(block.q_norm),
             static_cast<const T*>(block.k_norm), stack.eps);
    const AttentionCall call{b.qkv, width, b.attended, stack.heads,
                             layer, stack.scale * LOG2_E, block.window};
    paged_attention<T>(pool, plan, call, cache, batch);
    const bool last = layer + 1 == stack.count;
    if (last && wanted.count >= 0) {
      move_up(b.attended, block.output->k, wanted);
      move_up(residual, stack.hidden, wanted);
      rows = wanted.count;
    }
    linear(pool, *block.output, b.attended, block.output->k, b.sum, rows);
    rms_norm(pool, b.sum, residual, static_cast<const T*>(block.post_norm), stack.eps, b.x, rows,
             stack.hidden);
    gated_linear(pool, *block.gate_up, b.x, block.gate_up->k, b.gate_up,
                 {b.gated, b.gated_stride}, rows);
    linear(pool, *block.down, b.gated, b.gated_stride, b.sum, rows);
    const void* norm = last ? stack.final_norm : stack.blocks[layer + 1].input_norm;
    rms_norm(pool, b.sum, residual, static_cast<const T*>(norm), stack.eps, last ? out : b.x, rows,
             stack.hidden);
  }
}

}  // namespace pagedd
