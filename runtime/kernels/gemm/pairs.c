// Panels of integers of 16 bits, and of 8 where there is no instruction for four: a step has two elements of a row of A, or of a column of B, as halves of 32 bits. Products of two
// halves each, added up, are one instruction; sums wrap around, as those of int32 do.
#if PAIR == 2
static inline T pair(IN low, IN high) { return (T)((uint16_t)LOAD(low) | (uint32_t)LOAD(high) << 16); }

// Columns of A that lie dense: MR rows of a step together. Else four steps of each row.
static void pack_a(const job *j, int64_t ic, int64_t pc, int64_t m, int64_t k, T *q) {
  if (QUADS) {
    pack_quads_of_a(j, ic, pc, m, k, q);
    return;
  }
  const int64_t ra = j->ra, ca = j->ca, deep = steps_of(k);
  for (int64_t i = 0; i < m; i += MR, q += MR * deep) {
    const IN *const A = j->A + (ic + i) * ra + pc * ca;
    const int64_t rows = least(MR, m - i);
    if (j->columns) {
      for (int64_t p = 0; p < deep; ++p)
        for (int64_t x = 0; x < MR; ++x) {
          const IN *const from = A + x + 2 * p * ca;
          q[p * MR + x] = x >= rows || 2 * p >= k ? 0 : pair(from[0], 2 * p + 1 < k ? from[ca] : 0);
        }
      continue;
    }
    for (int64_t x = 0; x < MR; ++x) {
      const IN *const from = A + least(x, rows - 1) * ra;
      int64_t p = 0;
      for (; x < rows && 2 * p + 8 <= k; p += 4) {
        int16_t *const to = (int16_t *)(q + p * MR + x * 4);
        for (int u = 0; u < 8; ++u) to[u] = (int16_t)LOAD(from[(2 * p + u) * ca]);
      }
      for (; p < deep; ++p) {
        const int64_t at = p / 4 * 4 * MR + x * 4 + p % 4;
        q[at] = x >= rows || 2 * p >= k ? 0 : pair(from[2 * p * ca], 2 * p + 1 < k ? from[(2 * p + 1) * ca] : 0);
      }
    }
  }
}

static void pack_b(const job *j, int64_t pc, int64_t jc, int64_t k, int64_t n, T *q) {
  if (QUADS) {
    pack_quads_of_b(j, pc, jc, k, n, q);
    return;
  }
  const int64_t rb = j->rb, cb = j->cb, columns = least(n, NR);
  const IN *const B = j->B + pc * rb + jc * cb;
  for (int64_t p = 0; p < steps_of(k); ++p, q += NR) {
    const IN *const first = B + 2 * p * rb, *const second = first + rb;
    int64_t x = 0;
    if (2 * p + 1 < k && cb == 1)
      for (; x < columns; ++x) q[x] = pair(first[x], second[x]);
    for (; x < columns && 2 * p < k; ++x) q[x] = pair(first[x * cb], 2 * p + 1 < k ? second[x * cb] : 0);
    for (; x < NR; ++x) q[x] = 0;
  }
}
#endif
