// Fourier transforms of columns that lie beside each other: Stockham's algorithm, which leaves results in order, by passes of radix
// 8, 5, 4, 3 and 2. Real and imaginary parts are arrays of their own, and every inner loop runs over contiguous columns. T is the
// type, FMA(a, b, c) is a·b + c.
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct { T re, im; } C;
typedef struct { T *re, *im; } Split;

// Numbers between the parts of an array that a pass reads together, which else would lie a power of two apart, in one set of a cache.
enum { MOST_PASSES = 40, GAP = 64 / sizeof(T), GAPS = 8 * GAP };

INLINE C sum(C a, C b) { return (C){a.re + b.re, a.im + b.im}; }

INLINE C difference(C a, C b) { return (C){a.re - b.re, a.im - b.im}; }

INLINE C product(C a, C w) { return (C){FMA(a.re, w.re, -(a.im * w.im)), FMA(a.re, w.im, a.im * w.re)}; }

INLINE C scaled(C a, T by) { return (C){a.re * by, a.im * by}; }

// -i·a
INLINE C turned(C a) { return (C){a.im, -a.re}; }

// a + b·t
INLINE C more(C a, C b, T t) { return (C){FMA(b.re, t, a.re), FMA(b.im, t, a.im)}; }

#define EIGHTH ((T)0.70710678118654752)
#define THIRD ((T)0.86602540378443865)
#define FIFTH_COS ((T)0.30901699437494742)
#define FIFTH_SIN ((T)0.95105651629515357)
#define TWO_FIFTHS_COS ((T)-0.80901699437494742)
#define TWO_FIFTHS_SIN ((T)0.58778525229247313)

// Transforms of 2 to 5 numbers in place.
#define DFT2(a, b) { const C d_ = difference(a, b); a = sum(a, b); b = d_; }
#define DFT3(a, b, c) { \
  const C s_ = sum(b, c), d_ = scaled(turned(difference(b, c)), THIRD), m_ = more(a, s_, (T)-0.5); \
  a = sum(a, s_); b = sum(m_, d_); c = difference(m_, d_); }
#define DFT4(a, b, c, d) { \
  const C s_ = sum(a, c), u_ = difference(a, c), v_ = sum(b, d), w_ = turned(difference(b, d)); \
  a = sum(s_, v_); b = sum(u_, w_); c = difference(s_, v_); d = difference(u_, w_); }
#define DFT5(a, b, c, d, e) { \
  const C s_ = sum(b, e), u_ = turned(difference(b, e)), v_ = sum(c, d), w_ = turned(difference(c, d)); \
  const C m_ = more(more(a, s_, FIFTH_COS), v_, TWO_FIFTHS_COS), n_ = more(more(a, s_, TWO_FIFTHS_COS), v_, FIFTH_COS); \
  const C p_ = more(scaled(u_, FIFTH_SIN), w_, TWO_FIFTHS_SIN), q_ = more(scaled(u_, TWO_FIFTHS_SIN), w_, -FIFTH_SIN); \
  a = sum(a, sum(s_, v_)); b = sum(m_, p_); c = sum(n_, q_); d = difference(n_, q_); e = difference(m_, p_); }

#define TAKE(k) C a##k = {from.re[q + k * apart], from.im[q + k * apart]};
#define GIVE(k, n) { \
  const C y_ = last || k == 0 ? a##n : product(a##n, w##k); \
  to.re[q + k * lanes] = y_.re, to.im[q + k * lanes] = y_.im; }
#define ROOT(k) const C w##k = {roots.re[k * p * step], roots.im[k * p * step]};
#define LOOP _Pragma("omp simd") for (int64_t q = 0; q < lanes; ++q)

// One pass over `lanes` columns of `radix`·m numbers: transforms of `radix` numbers, times roots of one that are `step` apart in the
// table. In the last pass all roots are one. The next pass reads parts of `part` transforms, with a gap after each.
INLINE void pass(int radix, int64_t m, int64_t lanes, int64_t part, const Split from_, const Split to_, const Split roots, int64_t step, _Bool last) {
  const int64_t apart = m * lanes + GAP;
  for (int64_t p = 0; p < m; ++p) {
    const int64_t at = p * lanes, target = p * radix * lanes + p / part * GAP;
    const struct { const T *restrict re, *restrict im; } from = {from_.re + at, from_.im + at};
    const struct { T *restrict re, *restrict im; } to = {to_.re + target, to_.im + target};
    ROOT(0) ROOT(1)
    if (radix == 2) LOOP {
      TAKE(0) TAKE(1)
      DFT2(a0, a1)
      GIVE(0, 0) GIVE(1, 1)
    }
    if (radix == 2) continue;
    ROOT(2)
    if (radix == 3) LOOP {
      TAKE(0) TAKE(1) TAKE(2)
      DFT3(a0, a1, a2)
      GIVE(0, 0) GIVE(1, 1) GIVE(2, 2)
    }
    if (radix == 3) continue;
    ROOT(3)
    if (radix == 4) LOOP {
      TAKE(0) TAKE(1) TAKE(2) TAKE(3)
      DFT4(a0, a1, a2, a3)
      GIVE(0, 0) GIVE(1, 1) GIVE(2, 2) GIVE(3, 3)
    }
    if (radix == 4) continue;
    ROOT(4)
    if (radix == 5) LOOP {
      TAKE(0) TAKE(1) TAKE(2) TAKE(3) TAKE(4)
      DFT5(a0, a1, a2, a3, a4)
      GIVE(0, 0) GIVE(1, 1) GIVE(2, 2) GIVE(3, 3) GIVE(4, 4)
    }
    if (radix == 5) continue;
    ROOT(5) ROOT(6) ROOT(7)
    LOOP {
      TAKE(0) TAKE(1) TAKE(2) TAKE(3) TAKE(4) TAKE(5) TAKE(6) TAKE(7)
      DFT4(a0, a2, a4, a6)
      DFT4(a1, a3, a5, a7)
      a3 = scaled(sum(a3, turned(a3)), EIGHTH), a5 = turned(a5), a7 = scaled(difference(turned(a7), a7), EIGHTH);
      DFT2(a0, a1) DFT2(a2, a3) DFT2(a4, a5) DFT2(a6, a7)
      GIVE(0, 0) GIVE(1, 2) GIVE(2, 4) GIVE(3, 6) GIVE(4, 1) GIVE(5, 3) GIVE(6, 5) GIVE(7, 7)
    }
  }
}

#define PASS(name, radix, last) \
  static __attribute__((noinline)) void name(int64_t m, int64_t lanes, int64_t part, Split from, Split to, Split roots, int64_t step) { \
    pass(radix, m, lanes, part, from, to, roots, step, last); \
  }
PASS(pass_2, 2, 0) PASS(pass_3, 3, 0) PASS(pass_4, 4, 0) PASS(pass_5, 5, 0) PASS(pass_8, 8, 0)
PASS(last_2, 2, 1) PASS(last_3, 3, 1) PASS(last_4, 4, 1) PASS(last_5, 5, 1) PASS(last_8, 8, 1)

static void (*const PASSES[2][9])(int64_t, int64_t, int64_t, Split, Split, Split, int64_t) = {
  {0, 0, pass_2, pass_3, pass_4, pass_5, 0, 0, pass_8}, {0, 0, last_2, last_3, last_4, last_5, 0, 0, last_8},
};

// The radix of each pass of a transform of n numbers, and their count.
static int radices(int64_t n, int *found) {
  static const int known[] = {5, 3, 8, 4, 2};
  int count = 0;
  for (int k = 0; k < 5; ++k)
    for (; n % known[k] == 0; n /= known[k]) found[count++] = known[k];
  return count;
}

// Where row j of an array that a first pass reads begins.
INLINE int64_t placed(int64_t j, int64_t n, int radix, int64_t columns) { return j * columns + j / (n / radix) * GAP; }

// Transforms of `columns` columns of n numbers, which lie in `here`; of the two, the one where the results are. `roots` has `all` roots.
static Split along_columns(int64_t n, const int *radix, int passes, int64_t columns, Split here, Split there, Split roots, int64_t all) {
  int64_t length = n, lanes = columns;
  for (int k = 0; k < passes; ++k) {
    const int64_t m = length / radix[k];
    PASSES[m == 1][radix[k]](m, lanes, m == 1 ? 1 : m / radix[k + 1], here, there, roots, all / length);
    const Split swapped = here;
    here = there, there = swapped, length = m, lanes *= radix[k];
  }
  return here;
}
