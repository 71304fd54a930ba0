// Small-batch product over 8-bit weights: blocks of 32 with a scale each, `[out, in]`.
#include "shim.h"

#define LANES 16

typedef struct {
  const signed char *weights;
  const float *scales;
  const float *x;
  float *y;
  int lanes;
  int outputs;
  int inputs;
  int blocks;
} EightBitArgs;

typedef struct ALIGNED(4) { signed char bytes[4]; } Four;

// One block computes one output of up to sixteen lanes; weights are read once for them.
KERNEL(eight_bit, EightBitArgs) {
  SHARED(float, sums, THREADS * LANES);
  int output = (int)BLOCK_X, first = (int)BLOCK_Y * LANES;
  int lanes = a.lanes - first < LANES ? a.lanes - first : LANES;
  const Four *weights = (const Four *)(a.weights + (i64)output * a.blocks * 32);
  const float *scales = a.scales + (i64)output * a.blocks;
  PHASE {
    float sum[LANES];
    for (int lane = 0; lane < LANES; lane++) sum[lane] = 0.0f;
    for (int four = tid; four < a.blocks * 8; four += THREADS) {
      Four bytes = weights[four];
      float scale = scales[four / 8];
      for (int i = 0; i < 4; i++) {
        int input = 4 * four + i;
        if (input >= a.inputs) break;
        float weight = scale * (float)bytes.bytes[i];
        for (int lane = 0; lane < LANES; lane++)
          if (lane < lanes) sum[lane] += weight * a.x[(i64)(first + lane) * a.inputs + input];
      }
    }
    for (int lane = 0; lane < LANES; lane++) sums[lane * THREADS + tid] = sum[lane];
  }
  for (int half = THREADS / 2; half > 0; half /= 2) PHASE {
      for (int lane = 0; lane < LANES; lane++)
        if (tid < half) sums[lane * THREADS + tid] += sums[lane * THREADS + tid + half];
    }
  PHASE {
    if (tid < lanes) a.y[(i64)(first + tid) * a.outputs + output] = sums[tid * THREADS];
  }
}
