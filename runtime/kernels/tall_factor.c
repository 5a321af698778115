// The triangular factor R of a tall matrix, A = Q·R, by Householder's reflections of blocks of rows that stay in a near cache.
//
// A block below the factor of the rows before it is brought to zero column by column (Golub and Van Loan, "Matrix Computations",
// 6.5.3, adding rows; Demmel, Grigori, Hoemmen and Langou, 2012, sequential TSQR): each reflection touches one row of R and the block.
#include <math.h>
#include <stdint.h>

#define ROWS 256
#define MOST 40  // columns

static double dot(const double *restrict a, const double *restrict b) {
  double sum = 0;
  #pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < ROWS; ++i) sum += a[i] * b[i];
  return sum;
}

static void reduce(double *restrict r, double (*restrict block)[ROWS], int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    const double below = dot(block[j], block[j]), head = r[j * n + j];
    if (below == 0) continue;
    const double length = sqrt(head * head + below), diagonal = head > 0 ? -length : length;
    const double inverse = 1 / (head - diagonal), weight = (diagonal - head) / diagonal;
    double *const v = block[j];
    #pragma omp simd
    for (int64_t i = 0; i < ROWS; ++i) v[i] *= inverse;
    r[j * n + j] = diagonal;
    for (int64_t k = j + 1; k < n; ++k) {
      double *const x = block[k];
      const double part = weight * (r[j * n + k] + dot(v, x));
      r[j * n + k] -= part;
      #pragma omp simd
      for (int64_t i = 0; i < ROWS; ++i) x[i] -= part * v[i];
    }
  }
}

// a: m by n, b: m by k, elements apart by their steps; r: (n + k) squared zeros, which become the factor of [a b]. 0: well done; 1: there
// are too many columns.
int64_t tall_factor(const double *a, const double *b, double *r, int64_t m, int64_t n, int64_t k, const int64_t *steps) {
  if (n + k > MOST) return 1;
  double block[MOST][ROWS] __attribute__((aligned(64)));
  for (int64_t from = 0; from < m; from += ROWS) {
    const int64_t rows = m - from < ROWS ? m - from : ROWS;
    for (int64_t j = 0; j < n + k; ++j) {
      const double *const x = j < n ? a + from * steps[0] + j * steps[1] : b + from * steps[2] + (j - n) * steps[3];
      const int64_t step = j < n ? steps[0] : steps[2];
      for (int64_t i = 0; i < rows; ++i) block[j][i] = x[i * step];
      for (int64_t i = rows; i < ROWS; ++i) block[j][i] = 0;
    }
    reduce(r, block, n + k);
  }
  return 0;
}
