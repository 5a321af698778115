// Panels of integers of 8 bits: a step has four elements of a row of A, or of a column of B, whose products are added up by one
// instruction; sums wrap around, as those of int32 do. A's elements have their highest bits turned: see DOT_QUADS.
#if PAIR == 2
// The elements at `from` and `step`, 2 and 3 times `step` behind it, of which there are n; zeros after them.
static inline uint32_t quad(const IN *from, int64_t step, int64_t n) {
  uint32_t all = 0;
  for (int u = 0; u < 4; ++u) all |= (uint32_t)(u < n ? (uint8_t)from[u * step] : 0) << 8 * u;
  return all;
}

// Columns of A that lie dense: MR rows of a step together. Else four steps of each row.
static void pack_quads_of_a(const job *j, int64_t ic, int64_t pc, int64_t m, int64_t k, T *q) {
  const int64_t ra = j->ra, ca = j->ca, deep = steps_of(k);
  const uint32_t turned = 0x80808080u;
  for (int64_t i = 0; i < m; i += MR, q += MR * deep) {
    const IN *const A = j->A + (ic + i) * ra + pc * ca;
    const int64_t rows = least(MR, m - i);
    for (int64_t x = 0; x < MR; ++x) {
      const IN *const from = A + least(x, rows - 1) * ra;
      int64_t p = 0;
      for (; !j->columns && ca == 1 && 4 * p + 16 <= k; p += 4) {
        uint32_t four[4];
        memcpy(four, from + 4 * p, 16);
        for (int u = 0; u < 4; ++u) q[p * MR + x * 4 + u] = (T)(four[u] ^ turned);
      }
      for (; p < deep; ++p) {
        const int64_t at = j->columns ? p * MR + x : p / 4 * 4 * MR + x * 4 + p % 4;
        q[at] = (T)(quad(from + 4 * p * ca, ca, k - 4 * p) ^ turned);
      }
    }
  }
}

static void pack_quads_of_b(const job *j, int64_t pc, int64_t jc, int64_t k, int64_t n, T *q) {
  const int64_t rb = j->rb, cb = j->cb, columns = least(n, NR);
  const IN *const B = j->B + pc * rb + jc * cb;
  for (int64_t p = 0; p < steps_of(k); ++p, q += NR) {
    const IN *const from = B + 4 * p * rb;
    int64_t x = 0;
    if (4 * p + 4 <= k && cb == 1)
      for (; x < columns; ++x) q[x] = (T)quad(from + x, rb, 4);
    for (; x < columns; ++x) q[x] = (T)quad(from + x * cb, rb, k - 4 * p);
    for (; x < NR; ++x) q[x] = 0;
  }
}
#endif
