// The codec's convolutions with what each row keeps from one call to the next, and the nearest entry of a codebook.
//
// Activations are time-major, `[lanes, t, channels]`; lanes are all rows of the batch. What is kept of a row is
// `[columns, channels]`, and whether the row is fresh.
#include "shim.h"

typedef struct {
  const float *x;
  float *windows;
  float *kept;
  int *fresh;
  const int *active;
  int channels;
  int t;
  int columns;
  int taps;
  int stride;
  int dilation;
  int outputs;
  int replicate;
} WindowArgs;

// Column `time` of a lane's past and input in one.
DEVICE float column(const WindowArgs *a, i64 lane, int time, int channel) {
  const float *x = a->x + lane * a->t * a->channels + channel;
  if (time >= a->columns) return x[(i64)(time - a->columns) * a->channels];
  if (a->replicate && a->fresh[lane]) return x[0];
  return a->kept[(lane * a->columns + time) * a->channels + channel];
}

// Lays out the window of each output, `[lanes * outputs, taps * channels]`: a convolution is a product over it.
KERNEL(unfold, WindowArgs) {
  PHASE {
    i64 lane = BLOCK_Y, size = (i64)a.outputs * a.taps * a.channels;
    i64 i = (i64)BLOCK_X * THREADS + tid;
    if (i < size) {
      int channel = (int)(i % a.channels), tap = (int)(i / a.channels % a.taps);
      int output = (int)(i / a.channels / a.taps);
      float value = 0.0f;
      if (a.active[lane]) value = column(&a, lane, output * a.stride + tap * a.dilation, channel);
      a.windows[lane * size + i] = value;
    }
  }
}

// Keeps the newest columns of the lanes that take part.
KERNEL(keep, WindowArgs) {
  PHASE {
    i64 lane = BLOCK_Y;
    int channel = BLOCK_X * THREADS + tid;
    if (channel < a.channels && a.active[lane]) {
      // Upwards: what is read lies above what was written.
      for (int time = 0; time < a.columns; time++)
        a.kept[(lane * a.columns + time) * a.channels + channel] = column(&a, lane, time + a.t, channel);
    }
  }
}

// Rows that took part are fresh no more.
KERNEL(settle, WindowArgs) {
  PHASE {
    i64 lane = (i64)BLOCK_X * THREADS + tid;
    if (lane < a.outputs && a.active[lane]) a.fresh[lane] = 0;
  }
}

typedef struct {
  const float *x;
  float *y;
  const float *kept;
  const float *taps;
  const float *bias;
  const int *active;
  int channels;
  int t;
  int stride;
} UpsampleArgs;

// Transposed convolution, every channel for itself; `taps` is `[2 * stride, channels]`.
KERNEL(upsample, UpsampleArgs) {
  PHASE {
    i64 lane = BLOCK_Y, size = (i64)a.t * a.stride * a.channels;
    i64 i = (i64)BLOCK_X * THREADS + tid;
    if (i < size) {
      int channel = (int)(i % a.channels), j = (int)(i / a.channels % a.stride);
      int time = (int)(i / a.channels / a.stride);
      float value = 0.0f;
      if (a.active[lane]) {
        const float *x = a.x + (lane * a.t + time) * a.channels + channel;
        float before = time ? x[-a.channels] : a.kept[lane * a.channels + channel];
        value = x[0] * a.taps[(i64)j * a.channels + channel] +
                before * a.taps[(i64)(j + a.stride) * a.channels + channel];
        if (a.bias) value += a.bias[channel];
      }
      a.y[lane * size + i] = value;
    }
  }
}

typedef struct {
  const float *scores;
  const float *bias;
  const float *entries;
  float *residual;
  int *codes;
  int count;
  int dim;
} NearestArgs;

// The largest score plus bias, the lowest index on a tie, 0 where nothing is a number; takes that entry off.
KERNEL(nearest, NearestArgs) {
  SHARED(float, best, THREADS);
  SHARED(int, at, THREADS);
  const float *scores = a.scores + (i64)BLOCK_X * a.count;
  float *residual = a.residual + (i64)BLOCK_X * a.dim;
  PHASE {
    float own = MINUS_INFINITY;
    int index = 0;
    for (int i = tid; i < a.count; i += THREADS) {
      float score = scores[i] + a.bias[i];
      if (score > own) {
        own = score;
        index = i;
      }
    }
    best[tid] = own;
    at[tid] = index;
  }
  for (int half = THREADS / 2; half > 0; half /= 2) PHASE {
      if (tid < half) {
        float other = best[tid + half];
        if (other > best[tid] || (other == best[tid] && at[tid + half] < at[tid])) {
          best[tid] = other;
          at[tid] = at[tid + half];
        }
      }
    }
  PHASE {
    const float *entry = a.entries + (i64)at[0] * a.dim;
    if (tid == 0) a.codes[BLOCK_X] = at[0];
    for (int d = tid; d < a.dim; d += THREADS) residual[d] -= entry[d];
  }
}
