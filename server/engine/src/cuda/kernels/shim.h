// One source for two machines: an NVIDIA GPU (compiled by nvcc) and the host (compiled as C, for tests).
//
// A kernel is a sequence of phases. Within a phase threads do not see each other's writes; between two phases all of a
// block do. On the host a phase is a loop over the threads, forwards or backwards: what works in both orders does not
// depend on the order. Memory that a block shares begins as NaN on the host, so that nobody reads what nobody wrote.
#pragma once

#define THREADS 128

#ifdef __CUDACC__

#define DEVICE static __device__ __forceinline__
#define KERNEL(name, Args) extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ Args a)
#define BLOCK_X blockIdx.x
#define BLOCK_Y blockIdx.y
#define SHARED(type, name, count) __shared__ type name[count]
#define PHASE for (int tid = threadIdx.x, once = 1; once; once = 0, __syncthreads())
// Sums and products that are never fused, so that both machines give the same bits.
#define ADD(x, y) __fadd_rn(x, y)
#define SUB(x, y) __fsub_rn(x, y)
#define MUL(x, y) __fmul_rn(x, y)
#define DIV(x, y) __fdiv_rn(x, y)
#define BITS(x) __float_as_uint(x)
#define FLOAT(bits) __uint_as_float(bits)
#define HIGH(x, y) __umulhi(x, y)
#define COUNT(at, by) atomicAdd(at, by)
#define ALIGNED(bytes) __align__(bytes)
#define INFINITE __int_as_float(0x7f800000)

#else

#include <math.h>
#include <string.h>

#define DEVICE static inline
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
#define KERNEL(name, Args)                                                                         \
  static void JOIN(name, _block)(const Args a, unsigned block_x, unsigned block_y);                \
  void JOIN(ORDER, name)(const void *args, unsigned blocks_x, unsigned blocks_y) {                 \
    Args a;                                                                                        \
    memcpy(&a, args, sizeof a);                                                                    \
    for (unsigned y = 0; y < blocks_y; y++)                                                        \
      for (unsigned x = 0; x < blocks_x; x++) JOIN(name, _block)(a, x, y);                         \
  }                                                                                                \
  unsigned long JOIN(JOIN(ORDER, name), _args)(void) { return sizeof(Args); }                      \
  static void JOIN(name, _block)(const Args a, unsigned block_x, unsigned block_y)
#define BLOCK_X block_x
#define BLOCK_Y block_y
#define SHARED(type, name, count)                                                                  \
  type name[count];                                                                                \
  memset(name, 0xff, sizeof name)
#ifdef BACKWARD
#define PHASE for (int tid = THREADS - 1; tid >= 0; tid--)
#else
#define PHASE for (int tid = 0; tid < THREADS; tid++)
#endif
#define ADD(x, y) ((x) + (y))
#define SUB(x, y) ((x) - (y))
#define MUL(x, y) ((x) * (y))
#define DIV(x, y) ((x) / (y))
DEVICE unsigned BITS(float x) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  return bits;
}
DEVICE float FLOAT(unsigned bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
#define HIGH(x, y) ((unsigned)(((unsigned long long)(x) * (y)) >> 32))
#define COUNT(at, by) (*(at) += (by))
#define ALIGNED(bytes) __attribute__((aligned(bytes)))
#define INFINITE INFINITY

#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define MINUS_INFINITY (-INFINITE)

// How numbers are kept.
enum { F32 = 0, BF16 = 1, FP8 = 2 };

DEVICE float of_bf16(u32 bits) { return FLOAT(bits << 16); }

// To the nearest, ties to even; what is not a number stays none.
DEVICE u16 to_bf16(float x) {
  u32 bits = BITS(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits >> 16) | 0x40u);
  return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// E4M3: four bits of exponent, three of mantissa, no infinity; the largest is 448.
#define FP8_MAX 448.0f
#define TWO_120 1.329227995784916e36f

DEVICE float of_fp8(u32 bits) {
  return FLOAT(((bits & 0x80u) << 24) | BITS(MUL(FLOAT((bits & 0x7fu) << 20), TWO_120)));
}

// For magnitudes up to 448, to the nearest, ties to even.
DEVICE u8 to_fp8(float x) {
  u32 bits = BITS(x), sign = (bits >> 24) & 0x80u;
  u32 small = BITS(MUL(FLOAT(bits & 0x7fffffffu), 7.52316384526264e-37f));
  return (u8)(sign | ((small + 0x7ffffu + ((small >> 20) & 1u)) >> 20));
}

// Halves the shared numbers until one is left; a whole block calls it between two phases.
#define TREE(at, count, expression)                                                                \
  for (int half = (count) / 2; half > 0; half /= 2)                                                \
  PHASE {                                                                                          \
    if (tid < half) {                                                                              \
      float left = at[tid], right = at[tid + half];                                                \
      at[tid] = (expression);                                                                      \
    }                                                                                              \
  }

// Tokens from here down name a slot of the board, see `backend.rs`: `[slots, PLANES, lanes]`.
#define ON_BOARD (-1000)
#define PLANES 3

// The token itself, or what the board holds in its place.
DEVICE int token_of(int token, const int *board, int lanes, i64 lane) {
  return token > ON_BOARD ? token : board[(i64)(ON_BOARD - token) * PLANES * lanes + lane];
}
