// Operations on single numbers, and sums of table entries.
#include "shim.h"

typedef struct {
  const float *x;
  u16 *y;
  i64 count;
} RoundArgs;

KERNEL(round_bf16, RoundArgs) {
  PHASE {
    i64 i = (i64)BLOCK_X * THREADS + tid;
    if (i < a.count) a.y[i] = to_bf16(a.x[i]);
  }
}

// y = [y +] scale * product + bias, for vectors of `width`.
typedef struct {
  float *y;
  const float *product;
  const float *scale;
  const float *bias;
  i64 count;
  int width;
  int add;
} FinishArgs;

KERNEL(finish, FinishArgs) {
  PHASE {
    i64 i = (i64)BLOCK_X * THREADS + tid;
    if (i < a.count) {
      int column = (int)(i % a.width);
      float value = a.product[i];
      if (a.scale) value *= a.scale[column];
      if (a.bias) value += a.bias[column];
      a.y[i] = a.add ? a.y[i] + value : value;
    }
  }
}

typedef struct {
  const float *ab;
  float *y;
  // The same in bf16, for a product; none: nobody asked.
  u16 *half;
  i64 count;
  int hidden;
} GateArgs;

KERNEL(silu_gate, GateArgs) {
  PHASE {
    i64 i = (i64)BLOCK_X * THREADS + tid;
    if (i < a.count) {
      i64 row = i / a.hidden;
      const float *ab = a.ab + row * 2 * a.hidden + i % a.hidden;
      float x = ab[0];
      float value = x / (1.0f + expf(-x)) * ab[a.hidden];
      a.y[i] = value;
      if (a.half) a.half[i] = to_bf16(value);
    }
  }
}

typedef struct {
  const float *from;
  float *to;
  i64 count;
} EachArgs;

// x/2 (1 + erf(x / sqrt 2)), the exact form.
KERNEL(gelu, EachArgs) {
  PHASE {
    i64 i = (i64)BLOCK_X * THREADS + tid;
    if (i < a.count) {
      float x = a.from[i];
      a.to[i] = 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    }
  }
}

KERNEL(elu, EachArgs) {
  PHASE {
    i64 i = (i64)BLOCK_X * THREADS + tid;
    if (i < a.count) {
      float x = a.from[i];
      a.to[i] = x > 0.0f ? x : expm1f(x);
    }
  }
}

KERNEL(add_to, EachArgs) {
  PHASE {
    i64 i = (i64)BLOCK_X * THREADS + tid;
    if (i < a.count) a.to[i] += a.from[i];
  }
}

// A table of an embedding.
typedef struct {
  const void *entries;
  int rows;
  int kind;
} TableRef;

// out[i] = [out[i] +] the sum over tables, in their order, of the entry that ids[i] names, by itself or as what a slot of
// the board holds for lane i; any other negative one adds nothing.
typedef struct {
  float *out;
  const int *ids;
  const TableRef *tables;
  const int *board;
  int table_count;
  int dim;
  int add;
  int lanes;
} EmbedArgs;

KERNEL(embed, EmbedArgs) {
  PHASE {
    int column = BLOCK_X * THREADS + tid;
    if (column < a.dim) {
      i64 row = BLOCK_Y;
      float sum = a.add ? a.out[row * a.dim + column] : 0.0f;
      for (int k = 0; k < a.table_count; k++) {
        int id = a.ids[row * a.table_count + k];
        id = token_of(id, a.board, a.lanes, row);
        TableRef table = a.tables[k];
        if (id >= 0 && id < table.rows) {
          i64 at = (i64)id * a.dim + column;
          sum += table.kind == BF16 ? of_bf16(((const u16 *)table.entries)[at])
                                    : ((const float *)table.entries)[at];
        }
      }
      a.out[row * a.dim + column] = sum;
    }
  }
}
