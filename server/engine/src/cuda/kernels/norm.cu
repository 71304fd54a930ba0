// Norms over the last dimension; one block for each vector.
#include "shim.h"

typedef struct {
  const float *x;
  float *y;
  const float *weight;
  const float *bias;
  // The same in bf16, for a product; none: nobody asked.
  u16 *half;
  int dim;
  float eps;
} NormArgs;

KERNEL(rms_norm, NormArgs) {
  SHARED(float, sums, THREADS);
  const float *x = a.x + (i64)BLOCK_X * a.dim;
  float *y = a.y + (i64)BLOCK_X * a.dim;
  u16 *rounded = a.half ? a.half + (i64)BLOCK_X * a.dim : 0;
  PHASE {
    float sum = 0.0f;
    for (int i = tid; i < a.dim; i += THREADS) sum += x[i] * x[i];
    sums[tid] = sum;
  }
  TREE(sums, THREADS, left + right)
  PHASE {
    float factor = 1.0f / sqrtf(a.eps + sums[0] / (float)a.dim);
    for (int i = tid; i < a.dim; i += THREADS) {
      float value = x[i] * (a.weight[i] * factor);
      y[i] = value;
      if (rounded) rounded[i] = to_bf16(value);
    }
  }
}

KERNEL(layer_norm, NormArgs) {
  SHARED(float, sums, THREADS);
  SHARED(float, squares, THREADS);
  const float *x = a.x + (i64)BLOCK_X * a.dim;
  float *y = a.y + (i64)BLOCK_X * a.dim;
  PHASE {
    float sum = 0.0f;
    for (int i = tid; i < a.dim; i += THREADS) sum += x[i];
    sums[tid] = sum;
  }
  TREE(sums, THREADS, left + right)
  PHASE {
    float mean = sums[0] / (float)a.dim, sum = 0.0f;
    for (int i = tid; i < a.dim; i += THREADS) sum += (x[i] - mean) * (x[i] - mean);
    squares[tid] = sum;
  }
  TREE(squares, THREADS, left + right)
  PHASE {
    float mean = sums[0] / (float)a.dim;
    float factor = 1.0f / sqrtf(squares[0] / (float)a.dim + a.eps);
    for (int i = tid; i < a.dim; i += THREADS) y[i] = (x[i] - mean) * factor * a.weight[i] + a.bias[i];
  }
}
