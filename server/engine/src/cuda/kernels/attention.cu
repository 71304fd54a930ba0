// Keys and values of one layer in a ring, and attention over it.
//
// Keys lie in tiles of 32 cells, `[row, head, cell / 32, dim / 8, cell % 32, 8]`: 32 threads that each score a cell of
// their own read neighbouring memory. Values lie `[row, head, cell, dim]`. Heads are filled up to whole eights with
// zeros. FP8 has a scale for each cell, `[row, head, cell]`.
#include "shim.h"

#define TILE 32
#define OCTET 8
// Cells of one block. A window is cut by this number alone, never by what other rows do.
#define SPLIT 256

// One position that attends; see `backend.rs`.
typedef struct {
  int row;
  int active;
  int pinned;
  int unused;
  i64 position;
  i64 first;
  i64 pinned_rotation;
} Query;

// Cosine and sine of every pair, for the position itself and for pinned keys: `[queries, 2, dim / 2, 2]`.
typedef struct {
  float *turns;
  const Query *queries;
  const double *frequencies;
  int pairs;
  int count;
} TurnsArgs;

KERNEL(turns, TurnsArgs) {
  PHASE {
    int i = BLOCK_X * THREADS + tid;
    if (i < a.count * 2 * a.pairs) {
      int pair = i % a.pairs, which = i / a.pairs % 2;
      Query query = a.queries[i / a.pairs / 2];
      double angle = (double)(which ? query.pinned_rotation : query.position) * a.frequencies[pair];
      a.turns[2 * (i64)i] = (float)cos(angle);
      a.turns[2 * (i64)i + 1] = (float)sin(angle);
    }
  }
}

typedef struct {
  const float *qkv;
  const Query *queries;
  const float *turns;
  void *keys;
  void *values;
  float *key_scales;
  float *value_scales;
  // For each query, head and split: largest score, sum of weights, weighted values.
  float *peaks;
  float *totals;
  float *mixed;
  float *out;
  // The same in bf16, for a product; none: nobody asked.
  u16 *half;
  int heads;
  int dim;
  int dim_padded;
  int cells;
  int cells_padded;
  int splits;
  // The query with which this launch begins.
  int begin;
} AttendArgs;

DEVICE i64 cell_of(Query query, int cells) {
  i64 position = query.position, pinned = query.pinned;
  return position < pinned ? position : pinned + (position - pinned) % (cells - pinned);
}

// Whether the query sees what a cell holds.
DEVICE int sees(Query query, int cell, int cells) {
  i64 pinned = query.pinned;
  if (cell < pinned) return cell <= query.position;
  if (cell >= cells || query.position < pinned) return 0;
  i64 size = cells - pinned, newest = (query.position - pinned) % size;
  i64 age = newest - (cell - pinned);
  if (age < 0) age += size;
  return age <= query.position - pinned && query.position - age >= query.first;
}

// Number `d` of a head, turned; `x` is the head.
DEVICE float turned(const float *x, const float *turns, int d, int dim) {
  if (d >= dim) return 0.0f;
  if (!turns) return x[d];
  float cosine = turns[d / 2 * 2], sine = turns[d / 2 * 2 + 1];
  return d % 2 ? x[d - 1] * sine + x[d] * cosine : x[d] * cosine - x[d + 1] * sine;
}

DEVICE i64 key_at(i64 head_row, int cell, int d, const AttendArgs *a) {
  i64 tile = head_row * (a->cells_padded / TILE) + cell / TILE;
  return ((tile * (a->dim_padded / OCTET) + d / OCTET) * TILE + cell % TILE) * OCTET + d % OCTET;
}

DEVICE void put(void *to, i64 at, float x, int kind, float per_scale) {
  if (kind == F32) ((float *)to)[at] = x;
  if (kind == BF16) ((u16 *)to)[at] = to_bf16(x);
  if (kind == FP8) ((u8 *)to)[at] = to_fp8(MUL(x, per_scale));
}

typedef struct ALIGNED(16) { u32 words[4]; } Sixteen;
typedef struct ALIGNED(8) { u32 words[2]; } Eight;

// Eight neighbouring numbers; `at` is a multiple of eight.
DEVICE void load_octet(const void *from, i64 at, int kind, float *x) {
  if (kind == F32) {
    const Sixteen *source = (const Sixteen *)((const float *)from + at);
    for (int half = 0; half < 2; half++) {
      Sixteen four = source[half];
      for (int i = 0; i < 4; i++) x[4 * half + i] = FLOAT(four.words[i]);
    }
  } else if (kind == BF16) {
    Sixteen all = *(const Sixteen *)((const u16 *)from + at);
    for (int i = 0; i < 4; i++) {
      x[2 * i] = FLOAT(all.words[i] << 16);
      x[2 * i + 1] = FLOAT(all.words[i] & 0xffff0000u);
    }
  } else {
    Eight all = *(const Eight *)((const u8 *)from + at);
    for (int i = 0; i < 8; i++) x[i] = of_fp8((all.words[i / 4] >> (8 * (i % 4))) & 0xffu);
  }
}

// Writes key and value of one query and head.
DEVICE void write_cell(const AttendArgs a, int kind, u32 block_x, u32 block_y) {
  SHARED(float, largest, THREADS);
  SHARED(float, largest_value, THREADS);
  int head = (int)block_x, index = a.begin + (int)block_y;
  Query query = a.queries[index];
  if (!query.active) return;
  int cell = (int)cell_of(query, a.cells);
  i64 head_row = (i64)query.row * a.heads + head, width = (i64)a.heads * a.dim;
  const float *key = a.qkv + index * 3 * width + width + (i64)head * a.dim, *value = key + width;
  const float *turns = a.turns ? a.turns + (i64)index * 2 * a.dim : 0;
  float key_per_scale = 1.0f, value_per_scale = 1.0f;
  if (kind == FP8) {
    PHASE {
      float most = 0.0f, most_value = 0.0f;
      for (int d = tid; d < a.dim; d += THREADS) {
        most = fmaxf(most, fabsf(turned(key, turns, d, a.dim)));
        most_value = fmaxf(most_value, fabsf(value[d]));
      }
      largest[tid] = most;
      largest_value[tid] = most_value;
    }
    TREE(largest, THREADS, fmaxf(left, right))
    TREE(largest_value, THREADS, fmaxf(left, right))
    // The smallest magnitude keeps the inverse finite.
    float key_scale = fmaxf(largest[0], 1e-30f) / FP8_MAX;
    float value_scale = fmaxf(largest_value[0], 1e-30f) / FP8_MAX;
    key_per_scale = 1.0f / key_scale;
    value_per_scale = 1.0f / value_scale;
    PHASE {
      if (tid == 0) {
        a.key_scales[head_row * a.cells_padded + cell] = key_scale;
        a.value_scales[head_row * a.cells_padded + cell] = value_scale;
      }
    }
  }
  PHASE {
    for (int d = tid; d < a.dim_padded; d += THREADS) {
      put(a.keys, key_at(head_row, cell, d, &a), turned(key, turns, d, a.dim), kind, key_per_scale);
      put(a.values, (head_row * a.cells_padded + cell) * a.dim_padded + d, d < a.dim ? value[d] : 0.0f, kind,
          value_per_scale);
    }
  }
}

// The largest head.
#define DIM_MAX 256

// One query and head over one split of the cells.
DEVICE void attend_split(const AttendArgs a, int kind, u32 block_x, u32 block_y) {
  SHARED(float, q, DIM_MAX);
  SHARED(float, q_pinned, DIM_MAX);
  SHARED(float, scores, SPLIT);
  SHARED(float, tree, THREADS);
  SHARED(float, totals, THREADS);
  SHARED(float, sums, THREADS * OCTET);
  int split = (int)block_x % a.splits, head = (int)block_x / a.splits, index = a.begin + (int)block_y;
  Query query = a.queries[index];
  i64 part = ((i64)index * a.heads + head) * a.splits + split;
  i64 head_row = (i64)query.row * a.heads + head, width = (i64)a.heads * a.dim;
  int start = split * SPLIT, octets = a.dim_padded / OCTET, groups = THREADS / octets;
  if (query.active) {
    PHASE {
      const float *x = a.qkv + index * 3 * width + (i64)head * a.dim;
      const float *turns = a.turns ? a.turns + (i64)index * 2 * a.dim : 0;
      float scale = 1.0f / sqrtf((float)a.dim);
      for (int d = tid; d < a.dim_padded; d += THREADS) {
        q[d] = turned(x, turns, d, a.dim) * scale;
        q_pinned[d] = turned(x, turns ? turns + a.dim : 0, d, a.dim) * scale;
      }
    }
  }
  PHASE {
    float most = MINUS_INFINITY;
    for (int at = tid; at < SPLIT; at += THREADS) {
      int cell = start + at;
      float score = MINUS_INFINITY;
      if (query.active && sees(query, cell, a.cells)) {
        const float *own = cell < query.pinned ? q_pinned : q;
        float sum = 0.0f, octet[OCTET];
        for (int d = 0; d < a.dim_padded; d += OCTET) {
          load_octet(a.keys, key_at(head_row, cell, d, &a), kind, octet);
          for (int i = 0; i < OCTET; i++) sum += own[d + i] * octet[i];
        }
        score = kind == FP8 ? sum * a.key_scales[head_row * a.cells_padded + cell] : sum;
      }
      scores[at] = score;
      // What is not a number must show in the end.
      most = score > most || score != score ? score : most;
    }
    tree[tid] = most;
  }
  TREE(tree, THREADS, left != left ? left : (right > left || right != right ? right : left))
  float peak = tree[0];
  // In a tree of their own: not everybody has read the peak yet.
  PHASE {
    float sum = 0.0f;
    for (int at = tid; at < SPLIT; at += THREADS) {
      float weight = scores[at] == MINUS_INFINITY ? 0.0f : expf(scores[at] - peak);
      scores[at] = weight;
      sum += weight;
    }
    totals[tid] = sum;
  }
  TREE(totals, THREADS, left + right)
  if (peak != MINUS_INFINITY) {
    PHASE {
      float mixed[OCTET] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, octet[OCTET];
      int d = tid % octets * OCTET, group = tid / octets;
      if (group < groups) {
        for (int at = group; at < SPLIT; at += groups) {
          // Weightless cells may hold anything.
          if (scores[at] == 0.0f) continue;
          i64 cell = head_row * a.cells_padded + start + at;
          float weight = kind == FP8 ? scores[at] * a.value_scales[cell] : scores[at];
          load_octet(a.values, cell * a.dim_padded + d, kind, octet);
          for (int i = 0; i < OCTET; i++) mixed[i] += weight * octet[i];
        }
        for (int i = 0; i < OCTET; i++) sums[group * a.dim_padded + d + i] = mixed[i];
      }
    }
    PHASE {
      for (int d = tid; d < a.dim; d += THREADS) {
        float sum = 0.0f;
        for (int group = 0; group < groups; group++) sum += sums[group * a.dim_padded + d];
        a.mixed[part * a.dim + d] = sum;
      }
    }
  }
  PHASE {
    if (tid == 0) {
      a.peaks[part] = peak;
      a.totals[part] = totals[0];
    }
  }
}

// Puts the splits of one query and head together.
KERNEL(attend_join, AttendArgs) {
  int head = (int)BLOCK_X, index = a.begin + (int)BLOCK_Y;
  i64 part = ((i64)index * a.heads + head) * a.splits;
  PHASE {
    float peak = MINUS_INFINITY;
    for (int split = 0; split < a.splits; split++) {
      float own = a.peaks[part + split];
      if (own > peak || own != own) peak = own;
      if (peak != peak) break;
    }
    for (int d = tid; d < a.dim; d += THREADS) {
      float sum = 0.0f, total = 0.0f;
      for (int split = 0; split < a.splits; split++) {
        float own = a.peaks[part + split];
        if (own == MINUS_INFINITY) continue;
        float weight = expf(own - peak);
        sum += weight * a.mixed[(part + split) * a.dim + d];
        total += weight * a.totals[part + split];
      }
      // An idle query sees nothing.
      i64 at = ((i64)index * a.heads + head) * a.dim + d;
      float value = peak == MINUS_INFINITY ? 0.0f : sum / total;
      a.out[at] = value;
      if (a.half) a.half[at] = to_bf16(value);
    }
  }
}

KERNEL(write_f32, AttendArgs) { write_cell(a, F32, BLOCK_X, BLOCK_Y); }
KERNEL(write_bf16, AttendArgs) { write_cell(a, BF16, BLOCK_X, BLOCK_Y); }
KERNEL(write_fp8, AttendArgs) { write_cell(a, FP8, BLOCK_X, BLOCK_Y); }
KERNEL(attend_f32, AttendArgs) { attend_split(a, F32, BLOCK_X, BLOCK_Y); }
KERNEL(attend_bf16, AttendArgs) { attend_split(a, BF16, BLOCK_X, BLOCK_Y); }
KERNEL(attend_fp8, AttendArgs) { attend_split(a, FP8, BLOCK_X, BLOCK_Y); }
