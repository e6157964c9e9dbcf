// Cuts a batch into units of attention and runs them on the pool.
#pragma once

#include <vector>

#include "attention.h"

namespace pagedd {

// The last step of a row block that was split by parts: its states, part after part.
struct Join {
  Unit unit;  // of the first part
  int64_t parts;
};

struct AttentionPlan {
  std::vector<Unit> units;
  std::vector<Join> joins;
  std::vector<int64_t> ends;  // of the pieces of work, in units
  int64_t states = 0;  // of the split units together
};

// Row blocks are split by parts where there are too few of them to keep the threads busy. If there
// is enough to do, single rows take all key heads at once: a page is then read in one piece.
template <class T>
void plan_attention(const Attention<T>& attention, const Cache& cache, const Batch& batch,
                    int threads, AttentionPlan& plan) {
  plan.units.clear();
  plan.joins.clear();
  plan.states = 0;
  int64_t blocks = 0, parts_of_all = 0;
  const auto each_block = [&](auto&& f) {
    for (int64_t i = 0; i < batch.seqs; ++i) {
      const int64_t rows = batch.cu_seqlens[i + 1] - batch.cu_seqlens[i];
      if (batch.seq_lens[i] <= 0) continue;
      for (int64_t row = 0; row < rows; row += attention.block_rows()) {
        f(static_cast<int32_t>(i), static_cast<int32_t>(row),
          static_cast<int32_t>(std::min(attention.block_rows(), rows - row)));
      }
    }
  };
  const auto unit_of = [&](int32_t seq, int32_t row, int32_t rows) {
    Unit unit{seq, row, rows, 0, 1, 0, 0, -1};
    unit.part_begin = attention.first_key(attention.position(unit, 0)) / SPLIT;
    unit.part_end = attention.position(unit, rows - 1) / SPLIT + 1;
    return unit;
  };
  each_block([&](int32_t seq, int32_t row, int32_t rows) {
    const Unit unit = unit_of(seq, row, rows);
    ++blocks;
    parts_of_all += unit.part_end - unit.part_begin;
  });
  const bool together = parts_of_all >= 8 * threads;
  const bool split = threads > 1 && blocks * (together ? 1 : cache.kv_heads) < 4 * threads;
  const auto kv_heads = static_cast<int32_t>(cache.kv_heads);
  each_block([&](int32_t seq, int32_t row, int32_t rows) {
    Unit unit = unit_of(seq, row, rows);
    unit.kv_heads = together && rows == 1 ? kv_heads : 1;
    for (; unit.kv_head < kv_heads; unit.kv_head += unit.kv_heads) {
      const int64_t parts = unit.part_end - unit.part_begin;
      if (!split || parts == 1) {
        plan.units.push_back(unit);
        continue;
      }
      Unit part = unit;
      part.partial = plan.states;
      plan.joins.push_back({part, parts});
      for (int64_t p = unit.part_begin; p < unit.part_end; ++p) {
        part.part_begin = p;
        part.part_end = p + 1;
        part.partial = plan.states;
        plan.units.push_back(part);
        plan.states += attention.results(unit);
      }
    }
  });
}

// Merges the parts of a split row block in order, as a unit that has them all does.
template <class T>
void join_parts(const Attention<T>& attention, const Join& join, State* states, float* values) {
  const Unit& u = join.unit;
  const int64_t heads = attention.results(u), padded = attention.padded();
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t p = attention.position(u, attention.row_of(u, h));
    const int64_t first = std::max(attention.first_key(p) / SPLIT, u.part_begin);
    const int64_t total = u.partial + (first - u.part_begin) * heads + h;
    for (int64_t part = first + 1; part <= p / SPLIT; ++part) {
      const int64_t at = u.partial + (part - u.part_begin) * heads + h;
      merge(states[total], values + total * padded, states[at], values + at * padded, padded);
    }
    attention.write(u, h, states[total], values + total * padded);
  }
}

// Rows of sequences without tokens (padding) give zeros.
inline void zero_padding(const Batch& batch, int64_t row_bytes, char* out) {
  for (int64_t i = 0; i < batch.seqs; ++i) {
    if (batch.seq_lens[i] > 0) continue;
    const int64_t first = batch.cu_seqlens[i], rows = batch.cu_seqlens[i + 1] - first;
    std::memset(out + first * row_bytes, 0, static_cast<size_t>(rows * row_bytes));
  }
}

// Large pieces first, for the keys of a piece's first unit could not be asked for beforehand; then
// ever smaller ones, so that threads end together (guided self-scheduling, Polychronopoulos & Kuck
// 1987).
inline void cut_pieces(int64_t units, int threads, std::vector<int64_t>& ends) {
  ends.clear();
  for (int64_t at = 0; at < units; ends.push_back(at)) {
    at += std::max<int64_t>(1, (units - at) / (2 * threads));
  }
}

template <class T>
void paged_attention(Pool& pool, AttentionPlan& plan, const AttentionCall& call, const Cache& cache,
                     const Batch& batch) {
  const Attention<T> attention(call, cache, batch);
  plan_attention(attention, cache, batch, pool.threads(), plan);
  const int64_t row_bytes = call.heads * cache.head_dim * static_cast<int64_t>(sizeof(T));
  zero_padding(batch, row_bytes, static_cast<char*>(call.out));
  const int64_t values_at = round_up(plan.states * static_cast<int64_t>(sizeof(State)), 64);
  char* partial = pool.common().get(static_cast<size_t>(
      values_at + plan.states * attention.padded() * static_cast<int64_t>(sizeof(float))));
  auto* states = reinterpret_cast<State*>(partial);
  auto* values = reinterpret_cast<float*>(partial + values_at);
  const auto count = static_cast<int64_t>(plan.units.size());
  cut_pieces(count, pool.threads(), plan.ends);
  pool.run(static_cast<int64_t>(plan.ends.size()), [&](int64_t piece, int worker) {
    const Unit* units = plan.units.data();
    const auto i = static_cast<size_t>(piece);
    attention.run(units + (i == 0 ? 0 : plan.ends[i - 1]), units + plan.ends[i],
                  pool.scratch(worker), states, values);
  });
  pool.run(static_cast<int64_t>(plan.joins.size()), [&](int64_t i, int) {
    join_parts(attention, plan.joins[static_cast<size_t>(i)], states, values);
  });
}

}  // namespace pagedd
