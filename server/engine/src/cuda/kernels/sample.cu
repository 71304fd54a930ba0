// A token for each lane: temperature, top-k, penalty for what was said, or the largest logit.
//
// The same draw as `sampling.rs`, to the bit: a race of logit / temperature plus noise among the k largest, the noise a
// function of seed, position, stream and index. Nothing here is fused.
#include "shim.h"

#define RECENT_MAX 512

// What one lane wants.
typedef struct {
  u64 seed;
  i64 position;
  u32 stream;
  u32 top_k;
  float temperature;
  float penalty;
  int active;
  // What the next part is fed in place of the choice, also on the board; -1: the choice.
  int forced;
} Draw;

typedef struct {
  const float *logits;
  const Draw *draws;
  // `[lanes, RECENT_MAX]` and how many of each count.
  const int *recent;
  const int *recent_count;
  int *chosen;
  int *fed;
  // Set where a logit is not a number below infinity, or none is above minus infinity.
  int *faults;
  const int *board;
  int count;
  int lanes;
} SampleArgs;

// Larger logits first, then lower indices. Both zeros are one.
DEVICE u64 rank_of(float logit, u32 index) {
  u32 bits = BITS(logit == 0.0f ? 0.0f : logit);
  u32 order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ((u64)order << 32) | (u32)~index;
}

DEVICE float logit_of(const SampleArgs *a, i64 lane, Draw draw, int index) {
  float logit = a->logits[lane * a->count + index];
  if (draw.penalty == 1.0f) return logit;
  int said = 0;
  for (int i = 0; i < a->recent_count[lane]; i++) said |= a->recent[lane * RECENT_MAX + i] == index;
  if (!said) return logit;
  return logit > 0.0f ? DIV(logit, draw.penalty) : MUL(logit, draw.penalty);
}

// Philox 4x32 with ten rounds; source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".
DEVICE u32 philox_word(Draw draw, u32 index) {
  u32 counter[4] = {(u32)draw.position, (u32)((u64)draw.position >> 32), draw.stream, index / 4};
  u32 key[2] = {(u32)draw.seed, (u32)(draw.seed >> 32)};
  for (int round = 0; round < 10; round++) {
    u32 high0 = HIGH(0xd2511f53u, counter[0]), low0 = 0xd2511f53u * counter[0];
    u32 high1 = HIGH(0xcd9e8d57u, counter[2]), low1 = 0xcd9e8d57u * counter[2];
    counter[0] = high1 ^ counter[1] ^ key[0];
    counter[1] = low1;
    counter[2] = high0 ^ counter[3] ^ key[1];
    counter[3] = low0;
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  return counter[index % 4];
}

// The logarithm of `ln.rs`.
DEVICE float own_ln(float x) {
  const float coefficients[9] = {7.0376836e-2f,  -1.151461e-1f, 1.1676999e-1f,  -1.2420141e-1f, 1.4249323e-1f,
                                 -1.6668058e-1f, 2.0000715e-1f, -2.4999994e-1f, 3.333333e-1f};
  u32 bits = BITS(x);
  int exponent = (int)(bits >> 23) - 126;
  float m = FLOAT((bits & 0x007fffffu) | 0x3f000000u);
  if (m < 0.70710678118654752f) {
    m = ADD(m, m);
    exponent -= 1;
  }
  float f = SUB(m, 1.0f), z = MUL(f, f), p = coefficients[0], e = (float)exponent;
  for (int i = 1; i < 9; i++) p = ADD(MUL(p, f), coefficients[i]);
  float y = ADD(MUL(MUL(p, f), z), MUL(e, -2.1219444e-4f));
  y = SUB(y, MUL(0.5f, z));
  return ADD(ADD(f, y), MUL(e, 355.0f / 512.0f));
}

DEVICE float noise(Draw draw, u32 index) {
  float uniform = MUL(ADD((float)(philox_word(draw, index) >> 9), 0.5f), 1.0f / 8388608.0f);
  return -own_ln(-own_ln(uniform));
}

KERNEL(sample, SampleArgs) {
  SHARED(float, best, THREADS);
  SHARED(u32, at, THREADS);
  SHARED(int, wrong, THREADS);
  SHARED(u32, counts, 256);
  SHARED(u64, threshold, 1);
  SHARED(u32, wanted, 1);
  i64 lane = BLOCK_X;
  Draw draw = a.draws[lane];
  if (!draw.active) {
    PHASE {
      if (tid == 0) {
        a.chosen[lane] = 0;
        a.fed[lane] = 0;
        a.faults[lane] = 0;
      }
    }
    return;
  }
  // The largest, the lowest index of it, and whether all are fit.
  PHASE {
    float own = MINUS_INFINITY;
    u32 index = 0xffffffffu;
    int unfit = 0;
    for (int i = tid; i < a.count; i += THREADS) {
      float logit = logit_of(&a, lane, draw, i);
      unfit |= logit != logit || logit == INFINITE;
      if (logit > own) {
        own = logit;
        index = (u32)i;
      }
    }
    best[tid] = own;
    at[tid] = index;
    wrong[tid] = unfit;
  }
  for (int half = THREADS / 2; half > 0; half /= 2) PHASE {
      if (tid < half) {
        float other = best[tid + half];
        wrong[tid] |= wrong[tid + half];
        if (other > best[tid] || (other == best[tid] && at[tid + half] < at[tid])) {
          best[tid] = other;
          at[tid] = at[tid + half];
        }
      }
    }
  float most = best[0];
  u32 largest = at[0];
  int fault = wrong[0] || most == MINUS_INFINITY;
  int draws = !fault && draw.temperature != 0.0f && draw.top_k != 1;
  if (draws) {
    // The rank of the k-th, a byte at a time from the top.
    PHASE {
      if (tid == 0) {
        threshold[0] = 0;
        wanted[0] = draw.top_k < (u32)a.count ? draw.top_k : (u32)a.count;
      }
    }
    for (int shift = 56; shift >= 0; shift -= 8) {
      PHASE {
        for (int i = tid; i < 256; i += THREADS) counts[i] = 0;
      }
      PHASE {
        for (int i = tid; i < a.count; i += THREADS) {
          u64 rank = rank_of(logit_of(&a, lane, draw, i), (u32)i);
          if (shift == 56 || rank >> (shift + 8) == threshold[0] >> (shift + 8)) COUNT(&counts[(rank >> shift) & 255u], 1u);
        }
      }
      PHASE {
        if (tid == 0) {
          u32 left = wanted[0];
          int byte = 255;
          while (byte > 0 && counts[byte] < left) left -= counts[byte--];
          wanted[0] = left;
          threshold[0] |= (u64)byte << shift;
        }
      }
    }
    float per_temperature = DIV(1.0f, draw.temperature);
    if (per_temperature > 3.402823466e38f) per_temperature = 3.402823466e38f;
    PHASE {
      float own = MINUS_INFINITY;
      u32 index = 0xffffffffu;
      for (int i = tid; i < a.count; i += THREADS) {
        float logit = logit_of(&a, lane, draw, i);
        if (rank_of(logit, (u32)i) < threshold[0]) continue;
        float score = ADD(MUL(SUB(logit, most), per_temperature), noise(draw, (u32)i));
        if (score > own || (score == own && (u32)i < index)) {
          own = score;
          index = (u32)i;
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
    largest = at[0];
  }
  PHASE {
    if (tid == 0) {
      int chosen = fault ? 0 : (int)largest;
      a.chosen[lane] = chosen;
      int forced = token_of(draw.forced, a.board, a.lanes, lane);
      a.fed[lane] = forced >= 0 ? forced : chosen;
      a.faults[lane] = fault;
    }
  }
}
